# What is committed is there after each kind of shutdown, and nothing else is.
SELECT @@inkstone_fast_shutdown;
SHOW VARIABLES LIKE 'inkstone_fast_shutdown';
SET GLOBAL inkstone_fast_shutdown = 4;
SELECT @@inkstone_fast_shutdown;
SET GLOBAL inkstone_fast_shutdown = 'often';
SET SESSION inkstone_fast_shutdown = 2;
CREATE TABLE t (a INT PRIMARY KEY AUTO_INCREMENT, b VARCHAR(200), KEY (b));
INSERT INTO t (b) SELECT CONCAT('row ', seq) FROM seq_1_to_3000;
SET GLOBAL inkstone_flush_log_at_trx_commit = 0;
SET GLOBAL inkstone_fast_shutdown = 2;
UPDATE t SET b = CONCAT('changed ', a) WHERE a % 3 = 0;
DELETE FROM t WHERE a % 7 = 0;
BEGIN;
INSERT INTO t (b) VALUES ('not committed');
# restart
SELECT @@inkstone_fast_shutdown;
SELECT COUNT(*), SUM(a), MAX(b), SUM(b LIKE 'changed%') FROM t;
INSERT INTO t (b) VALUES ('after 2');
SET GLOBAL inkstone_fast_shutdown = 0;
DELETE FROM t WHERE a % 5 = 0;
# restart
SELECT COUNT(*), SUM(a), MAX(b), SUM(b LIKE 'changed%') FROM t;
SET GLOBAL inkstone_flush_log_at_trx_commit = 2;
INSERT INTO t (b) VALUES ('after 0');
SET GLOBAL inkstone_fast_shutdown = 3;
BEGIN;
UPDATE t SET b = 'not committed';
# restart
SELECT COUNT(*), SUM(a), MAX(b), SUM(b LIKE 'changed%') FROM t;
INSERT INTO t (b) VALUES ('after 3');
SELECT a, b FROM t ORDER BY a DESC LIMIT 3;
CHECK TABLE t;
DROP TABLE t;
