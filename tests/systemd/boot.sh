#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# boot.sh GROUP DIRECTORY USR-LOCAL: the first process in namespaces of its own (container.py).
# Enters the control group, which is the root of the namespace of those then: nobody else may
# be in it, or it could have no groups with limits in it. Makes a root of the host's /usr, its
# dynamic loader's cache and otherwise nothing of the host's, with a Casemate installed in
# /usr/local, and becomes systemd.
set -eu
if [ -n "$1" ]; then
	echo 0 >"$1/cgroup.procs"
	shift
	exec unshare --cgroup -- sh "$0" '' "$@"
fi
root=$2 installed=$3
mount --make-rprivate /
mount -t tmpfs -o mode=755 root "$root"
cd "$root"
mkdir -p usr etc/systemd/system proc sys dev run tmp root var/lib var/log/journal .old
mount --bind /usr usr
mount -o remount,bind,ro usr
mount --bind "$installed" usr/local
for d in bin sbin lib lib32 lib64; do
	if [ -L /$d ]; then cp -a /$d .
	elif [ -d /$d ]; then mkdir $d; mount --bind /$d $d; fi
done

cp -a /etc/ld.so.cache etc
echo root:x:0:0:root:/root:/bin/sh >etc/passwd
echo root:x:0: >etc/group
printf 'passwd: files\ngroup: files\nshadow: files\n' >etc/nsswitch.conf
echo ID=debian >etc/os-release
echo container >etc/hostname
tr -d - </proc/sys/kernel/random/uuid >etc/machine-id
cat >etc/systemd/system/container.target <<-'END'
	[Unit]
	Requires=basic.target
	After=basic.target
	AllowIsolate=yes
END

# The host's kernel is not for it to set up.
for unit in systemd-sysctl systemd-modules-load systemd-binfmt systemd-random-seed; do
	ln -s /dev/null etc/systemd/system/$unit.service
done
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 dev dev
while read -r name numbers; do
	mknod -m 666 dev/$name c $numbers
done <<-'END'
	null 1 3
	zero 1 5
	full 1 7
	random 1 8
	urandom 1 9
	tty 5 0
END
[ ! -e /dev/kvm ] || mknod -m 660 dev/kvm c 10 232
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
mount -t tmpfs -o mode=1777 shm dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
: >dev/console
mount -t tmpfs -o mode=755 run run
mount -t tmpfs -o mode=1777 tmp tmp

pivot_root . .old
cd /
umount -l .old
exec env -i container=casemate PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
	/lib/systemd/systemd --system --unit=container.target --log-target=console \
	--show-status=no
