# How many rows a transaction has changed: not entries of other indexes, and not what was undone.
CREATE TABLE t (a INT PRIMARY KEY, b INT, c INT, UNIQUE KEY b (b), KEY c (c)) ENGINE=Inkstone;
# InnoDB shows what it has seen until a tenth of a second has passed.
CREATE VIEW mine AS SELECT trx_rows_modified FROM information_schema.Inkstone_trx WHERE trx_mysql_thread_id = CONNECTION_ID();
START TRANSACTION;
INSERT INTO t VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3);
DO SLEEP(0.15);
SELECT * FROM mine;
UPDATE t SET b = b + 10, c = c + 1 WHERE a < 3;
DO SLEEP(0.15);
SELECT * FROM mine;
DELETE FROM t WHERE a = 3;
DO SLEEP(0.15);
SELECT * FROM mine;
SAVEPOINT s;
INSERT INTO t VALUES (4, 4, 4), (5, 5, 5);
DO SLEEP(0.15);
SELECT * FROM mine;
ROLLBACK TO SAVEPOINT s;
DO SLEEP(0.15);
SELECT * FROM mine;
# A statement that fails, and one that moves a row.
INSERT INTO t VALUES (6, 6, 6), (7, 11, 7);
DO SLEEP(0.15);
SELECT * FROM mine;
UPDATE t SET a = 8 WHERE a = 1;
DO SLEEP(0.15);
SELECT * FROM mine;
INSERT IGNORE INTO t VALUES (9, 9, 9), (10, 9, 10);
DO SLEEP(0.15);
SELECT * FROM mine;
COMMIT;
START TRANSACTION;
INSERT INTO t SELECT seq, seq, seq FROM seq_100_to_300;
DO SLEEP(0.15);
SELECT * FROM mine;
ROLLBACK;
DROP VIEW mine;
DROP TABLE t;
