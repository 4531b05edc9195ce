# SPDX-License-Identifier: Apache-2.0
# A repository's life, from init to the clone of a long history.
n=${US_COMMITS:-1000}
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org
export GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@example.org
export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000' GIT_PAGER=cat
git config --global init.defaultBranch main
git config --global core.editor true
git config --global advice.detachedHead false
git init r; cd r || exit
for i in $(seq 20); do mkdir -p d$i; seq $i 30 >d$i/f; done
echo '#!/bin/sh' >x; chmod +x x; ln -s x link
git add .; git status --short | head -3; git commit -q -m first; git log --format='%H %s'
git status
echo change >>d1/f
git diff --stat
git commit -qam second
git mv d2/f d2/g
git rm -q d3/f
git status -s
git commit -qm third
git checkout -q -b side
sed -i 1s/^/side/ d4/f
git commit -qam side
git checkout -q main
sed -i '$s/$/main/' d4/f
git commit -qam main
git merge --no-ff -m merged side; git log --graph --oneline --all
git checkout -q -b topic HEAD~1
for i in 1 2 3; do echo t$i >t$i; git add t$i; git commit -qm "topic $i"; done
git rebase main 2>/dev/null
git log --oneline | head -5
GIT_SEQUENCE_EDITOR='sed -i 2s/pick/fixup/' git rebase -i HEAD~3 >/dev/null 2>&1
git log --format=%s | head -3
git checkout -q main
echo ours >c
git add c
git commit -qm ours
git checkout -q -b conf HEAD~1
echo theirs >c
git add c
git commit -qm theirs
git merge main
echo $?
cat c
git status -s
echo both >c
git add c
git commit -qm resolved
git log -1 --format=%T
git stash list
echo wip >>c
git stash -q
cat c
git stash pop -q
cat c
git checkout -q c
git tag v1
git tag -a v2 -m annotated
git describe
git show --stat v2 | head -8
git blame d4/f | cut -c1-8 | uniq | head -3
git cherry-pick topic 2>&1 | head -2
git bisect start -q HEAD HEAD~4 2>&1 | tail -1
git bisect reset -q 2>/dev/null
git reflog | wc -l
git grep -n 29 d20/f
git ls-files -s | cksum
git archive HEAD | tar t | wc -l
git worktree add -q ../wt topic
ls ../wt | wc -l
git reset -q --hard HEAD~1; git clean -nd; git branch -a; git fsck 2>/dev/null; echo $?
cd ..; echo "== $n commits"
git init -q long; cd long || exit
for i in $(seq $n); do
	m="commit $i" b="content $i"
	printf 'commit refs/heads/main\ncommitter C <c@example.org> %d +0000\n' $((1700000000 + i))
	printf 'data %d\n%s\n' ${#m} "$m"
	printf 'M 100644 inline f%d\ndata %d\n%s\n' $((i % 50)) ${#b} "$b"
done | git fast-import --quiet
git rev-list --count main
git rev-parse main
git reset -q --hard
for i in $(seq ${US_REAL_COMMITS:-20}); do
	echo $i >>log
	git add log
	git commit -qm "real $i"
done
git rev-parse HEAD
git log --oneline | wc -l
git gc -q
echo $?
git count-objects -v | grep -E 'in-pack|packs|garbage'
git fsck --full 2>/dev/null
echo $?
cd ..
git clone -q long c1
git -C c1 log --oneline | wc -l
git clone -q --no-hardlinks --bare long c2.git
git clone -q file://$PWD/c2.git c3
git -C c3 rev-parse HEAD
git clone -q --depth 3 file://$PWD/c2.git c4
git -C c4 rev-list --count HEAD
cd c3 || exit
echo new >new
git add new
git commit -qm new
git push -q origin HEAD:main
git -C ../c2.git rev-parse main
cd ../c1 && git pull -q ../c2.git main && git rev-parse HEAD
git repack -adq
git prune
git log --format=%s -S'content 7' -- f7 | tail -1
git diff --stat HEAD~5 | tail -1
git rev-list --objects --all | wc -l
