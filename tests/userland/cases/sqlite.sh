# SPDX-License-Identifier: Apache-2.0
# sqlite3 in WAL mode with two writing processes, readers beside them, and a crash.
n=${US_ROWS:-200}
sqlite3 db 'PRAGMA journal_mode=WAL; CREATE TABLE t(who TEXT, i INTEGER, UNIQUE(who, i));'
writer() {
	{
		echo '.timeout 60000'
		for i in $(seq $n); do echo "INSERT INTO t VALUES('$1', $i);"; done
	} | sqlite3 db
}
writer a &
writer b &
for i in 1 2 3; do
	sqlite3 db 'PRAGMA busy_timeout=60000; SELECT count(*) >= 0 FROM t' | tail -1
done
wait
sqlite3 db 'SELECT who, count(*), sum(i) FROM t GROUP BY who; PRAGMA integrity_check;
PRAGMA wal_checkpoint(TRUNCATE);'
ls db*; sqlite3 db <<E
CREATE INDEX ti ON t(i); EXPLAIN QUERY PLAN SELECT * FROM t WHERE i = 5;
WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<10000) SELECT sum(x) FROM c;
SELECT json_extract('{"a":[1,2]}', '\$.a[1]'), hex(zeroblob(3)), date(0,'unixepoch');
.mode csv
SELECT * FROM t ORDER BY who, i LIMIT 3;
E
(echo 'BEGIN IMMEDIATE; INSERT INTO t VALUES("c", 1);'; sleep 1) | sqlite3 db & sleep 0.4
sqlite3 db 'INSERT INTO t VALUES("d", 1)' 2>&1 | sed 's/.*: //'
wait
sqlite3 db 'SELECT count(*) FROM t'
(echo "BEGIN; INSERT INTO t SELECT 'e', value FROM generate_series(1,1000);"; sleep 5) |
	timeout -s KILL 0.6 sqlite3 db
sqlite3 db 'PRAGMA integrity_check; SELECT count(*) FROM t'
sqlite3 db .dump | sqlite3 copy
sqlite3 copy 'SELECT count(*) FROM t'
sqlite3 db 'VACUUM INTO "v"'
sqlite3 v 'PRAGMA integrity_check'
sqlite3 db '.backup b'
cmp <(sqlite3 b .dump) <(sqlite3 db .dump)
echo $?
for j in delete truncate persist memory off; do
	sqlite3 j "PRAGMA journal_mode=$j; CREATE TABLE IF NOT EXISTS t(x); BEGIN;
		INSERT INTO t SELECT 1; COMMIT; SELECT count(*) FROM t;"
done
sqlite3 db 'SELEC' 2>/dev/null
echo $?
sqlite3 db 'PRAGMA mmap_size=10000000; SELECT sum(i) FROM t'
sqlite3 x 'PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL;
CREATE TABLE t(x); INSERT INTO t VALUES(1); SELECT * FROM t'
