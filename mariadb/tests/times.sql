# When a table was made, and when it was changed since the server started.
CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE=Inkstone;
CREATE TABLE p (a INT PRIMARY KEY, b INT) ENGINE=Inkstone PARTITION BY HASH (a) PARTITIONS 3;
CREATE VIEW times AS SELECT table_name, ABS(TIMESTAMPDIFF(SECOND, create_time, NOW())) < 300 AS made, ABS(TIMESTAMPDIFF(SECOND, update_time, NOW())) < 300 AS changed
  FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' ORDER BY table_name;
SELECT * FROM times;
INSERT INTO t VALUES (1, 1);
SELECT * FROM times;
# What is not committed does not count, nor what was rolled back.
START TRANSACTION;
INSERT INTO p VALUES (1, 1);
SELECT * FROM times;
ROLLBACK;
SELECT * FROM times;
START TRANSACTION;
UPDATE p SET b = 2;
COMMIT;
SELECT * FROM times;
INSERT INTO p VALUES (1, 1), (2, 2);
SELECT * FROM times;
# A table that is made anew was not changed, one that is emptied or gets another name was.
CREATE TABLE u (a INT) ENGINE=Inkstone;
TRUNCATE TABLE t;
TRUNCATE TABLE u;
RENAME TABLE p TO q;
SELECT * FROM times;
DELETE FROM t;
SELECT * FROM times;
INSERT INTO t SELECT seq, seq FROM seq_1_to_100;
SELECT * FROM times;
DROP TABLE t;
CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE=Inkstone;
SELECT * FROM times;
LOCK TABLES t WRITE;
INSERT INTO t VALUES (1, 1);
UNLOCK TABLES;
SELECT * FROM times;
# restart
SELECT * FROM times;
UPDATE t SET b = 5;
SELECT * FROM times;
# Also as SHOW TABLE STATUS has it, and of partitions.
SELECT partition_name, create_time IS NULL, update_time IS NULL FROM information_schema.partitions WHERE table_schema = DATABASE() AND table_name = 'q';
UPDATE q SET b = 7 WHERE a = 1;
SELECT partition_name, create_time IS NULL, update_time IS NULL FROM information_schema.partitions WHERE table_schema = DATABASE() AND table_name = 'q';
SELECT * FROM times;
# What an ALTER changes, by copying and in place, is no row.
CREATE TABLE v (a INT PRIMARY KEY, b INT) ENGINE=Inkstone;
INSERT INTO v VALUES (1, 1), (2, 2);
CREATE TABLE w (a INT PRIMARY KEY, b INT) ENGINE=Inkstone;
# restart
SELECT * FROM times;
ALTER TABLE v MODIFY COLUMN b BIGINT, ALGORITHM=COPY;
ALTER TABLE w MODIFY COLUMN b BIGINT, ALGORITHM=COPY;
SELECT * FROM times;
ALTER TABLE q ADD KEY (b), ALGORITHM=INPLACE;
ALTER TABLE u FORCE;
SELECT * FROM times;
OPTIMIZE TABLE t;
SELECT * FROM times;
REPLACE INTO w SELECT * FROM v;
INSERT INTO v VALUES (1, 1) ON DUPLICATE KEY UPDATE b = 5;
SELECT * FROM times;
DROP VIEW times;
DROP TABLE t, q, u, v, w;
