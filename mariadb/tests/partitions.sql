# Partitions by range, list, hash and key; pruning, exchange, reorganisation.
CREATE TABLE r (id INT, d DATE, v VARCHAR(10), PRIMARY KEY (id, d), KEY (v)) ENGINE=Inkstone
  PARTITION BY RANGE (YEAR(d)) (PARTITION p0 VALUES LESS THAN (2000), PARTITION p1 VALUES LESS THAN (2010), PARTITION p2 VALUES LESS THAN MAXVALUE);
INSERT INTO r SELECT seq, DATE('1995-01-01') + INTERVAL seq * 60 DAY, CONCAT('v', seq MOD 10) FROM seq_1_to_150;
SELECT partition_name, table_rows > 0 FROM information_schema.partitions WHERE table_schema = 'smoke' AND table_name = 'r';
SELECT COUNT(*) FROM r PARTITION (p1);
# InnoDB counts a row twice that comes while its background thread counts.
ANALYZE TABLE r;
EXPLAIN PARTITIONS SELECT * FROM r WHERE d = '2005-01-01';
SELECT id, d FROM r WHERE v = 'v3' AND d < '2001-01-01' ORDER BY id;
UPDATE r SET d = '1999-06-01' WHERE id = 100;
SELECT COUNT(*) FROM r PARTITION (p0);
ALTER TABLE r TRUNCATE PARTITION p2;
SELECT COUNT(*), MAX(d) FROM r;
ALTER TABLE r DROP PARTITION p2;
INSERT INTO r VALUES (999, '2020-01-01', 'late');
ALTER TABLE r ADD PARTITION (PARTITION p3 VALUES LESS THAN (2030));
INSERT INTO r VALUES (999, '2020-01-01', 'late');
ALTER TABLE r REORGANIZE PARTITION p0 INTO (PARTITION pa VALUES LESS THAN (1997), PARTITION pb VALUES LESS THAN (2000));
SELECT COUNT(*) FROM r PARTITION (pa);
SELECT COUNT(*) FROM r;
CREATE TABLE single (id INT, d DATE, v VARCHAR(10), PRIMARY KEY (id, d), KEY (v)) ENGINE=Inkstone;
ALTER TABLE r EXCHANGE PARTITION p3 WITH TABLE single;
SELECT * FROM single;
ALTER TABLE r REMOVE PARTITIONING;
SELECT COUNT(*) FROM r;
CREATE TABLE h (id INT PRIMARY KEY AUTO_INCREMENT, v INT) ENGINE=Inkstone PARTITION BY HASH (id) PARTITIONS 4;
INSERT INTO h (v) SELECT seq FROM seq_1_to_100;
SELECT COUNT(*), SUM(v), MAX(id) FROM h;
ALTER TABLE h COALESCE PARTITION 2;
ALTER TABLE h ADD PARTITION PARTITIONS 3;
SELECT COUNT(*), SUM(v), MAX(id) FROM h;
SELECT id FROM h WHERE id IN (5, 50, 500) ORDER BY id;
CREATE TABLE l (k VARCHAR(5), v INT, KEY (v)) ENGINE=Inkstone PARTITION BY LIST COLUMNS (k) (PARTITION x VALUES IN ('a', 'b'), PARTITION y VALUES IN ('c', NULL));
INSERT INTO l VALUES ('a', 1), ('b', 2), (NULL, 3);
INSERT INTO l VALUES ('z', 4);
SELECT * FROM l ORDER BY v;
CREATE TABLE k (a VARCHAR(10) PRIMARY KEY, v INT) ENGINE=Inkstone PARTITION BY KEY (a) PARTITIONS 3;
INSERT INTO k SELECT CONCAT('k', seq), seq FROM seq_1_to_30;
SELECT COUNT(*), SUM(v) FROM k WHERE a > 'k2';
CHECK TABLE r, h, l, k EXTENDED;
ANALYZE TABLE h;
OPTIMIZE TABLE l;
# Which row is refused first, and by which key, does not depend on the partition.
CREATE TABLE refused (a INT NOT NULL, b INT, PRIMARY KEY (a), KEY (b)) ENGINE=Inkstone PARTITION BY HASH (a) PARTITIONS 3;
INSERT INTO refused VALUES (1, 1), (2, 1), (3, 1);
INSERT INTO refused VALUES (10, 1), (3, 1), (1, 1), (2, 1);
INSERT INTO refused VALUES (1, 1), (3, 1), (5, 1);
UPDATE refused SET b = 7 WHERE a = 1;
UPDATE refused SET a = 3 WHERE a = 1;
UPDATE refused SET a = 0 ORDER BY a;
ALTER TABLE refused DROP PRIMARY KEY;
INSERT INTO refused VALUES (3, 8);
ALTER TABLE refused ADD PRIMARY KEY (a);
SELECT * FROM refused ORDER BY a, b;
DROP TABLE refused;
# Ordered scans compare columns that the statement does not read, and virtual ones.
CREATE TABLE one (a INT, KEY (a)) ENGINE=Inkstone;
CREATE TABLE ordered (id INT NOT NULL, n INT NOT NULL, t TEXT, v TEXT AS (CONCAT('v', n)) VIRTUAL, w VARCHAR(20) AS (CONCAT('w', -n)) VIRTUAL, PRIMARY KEY (id), KEY kt (t(3), n), KEY kv (v(4)), KEY kw (w DESC)) ENGINE=Inkstone PARTITION BY HASH (id) PARTITIONS 5;
INSERT INTO ordered (id, n, t) SELECT seq, seq * 7 % 23, CONCAT('t', seq % 9) FROM seq_1_to_40;
SELECT x.n FROM ordered x FORCE INDEX (kt) STRAIGHT_JOIN one y ON x.n = y.a;
SELECT n FROM ordered FORCE INDEX (kt) WHERE t >= 't7' ORDER BY t, n;
SELECT v, id FROM ordered FORCE INDEX (kv) GROUP BY v ORDER BY v;
SELECT w FROM ordered FORCE INDEX (kw) ORDER BY w DESC;
ALTER TABLE ordered ADD COLUMN x INT;
SELECT w, v, n FROM ordered FORCE INDEX (kw) WHERE w LIKE 'w%' ORDER BY w DESC LIMIT 12;
DROP TABLE ordered, one;
SET auto_increment_increment = 4, auto_increment_offset = 2;
CREATE TABLE counted (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, UNIQUE KEY (id)) ENGINE=Inkstone PARTITION BY HASH (id) PARTITIONS 3;
INSERT IGNORE INTO counted VALUES (), (), (), ();
SHOW CREATE TABLE counted;
ALTER TABLE counted FORCE;
SHOW CREATE TABLE counted;
INSERT INTO counted VALUES ();
ALTER TABLE counted FORCE, ALGORITHM=COPY;
SHOW CREATE TABLE counted;
SET auto_increment_increment = DEFAULT, auto_increment_offset = DEFAULT;
DROP TABLE counted;
# Partitions are merged by columns that a covering read does not give, and by virtual ones.
create table merged (id int, b blob not null, v int as (id div 2) virtual, n int, primary key (id, b(2)), key n (n), key nb (n, b(3)), key v (v)) engine=Inkstone partition by range (id) (partition p0 values less than (10), partition pmax values less than maxvalue);
insert into merged (id, b, n) select seq, repeat(char(97 + seq % 7), seq), seq % 3 from seq_1_to_25;
select min(n), max(n), count(n) from merged force index (n);
select count(n), sum(n) from merged force index (nb) where n >= 1;
select n from merged force index (nb) order by n desc;
select v, count(distinct n) from merged force index (v) group by v order by v;
select v, n, id from merged force index (v) where v > 3 order by v desc, id;
drop table merged;

# In place, all partitions in one step.
CREATE TABLE in_place (a INT NOT NULL AUTO_INCREMENT, b VARCHAR(20), KEY ka (a)) ENGINE=Inkstone PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (3), PARTITION p1 VALUES LESS THAN MAXVALUE);
INSERT INTO in_place (b) VALUES ('x'), ('y'), ('z'), (NULL);
ALTER TABLE in_place RENAME INDEX ka TO ka2, ALGORITHM=INPLACE;
ALTER TABLE in_place ADD KEY kb (b), ALGORITHM=INPLACE;
ALTER TABLE in_place ADD COLUMN c INT NOT NULL DEFAULT 5, ALGORITHM=INPLACE;
SELECT * FROM in_place FORCE INDEX (kb) ORDER BY b;
ALTER TABLE in_place DROP INDEX kb, ALGORITHM=INPLACE;
UPDATE in_place SET c = a;
SELECT * FROM in_place ORDER BY a;
CHECK TABLE in_place EXTENDED;
DROP TABLE in_place;

# Each partition keeps its counter, also where an ALTER copies it.
CREATE TABLE counted (a INT NOT NULL AUTO_INCREMENT PRIMARY KEY, b VARBINARY(20) NOT NULL) ENGINE=Inkstone PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (15), PARTITION p1 VALUES LESS THAN MAXVALUE);
INSERT INTO counted VALUES (1, 'x'), (16, 'y');
ALTER TABLE counted MODIFY COLUMN b VARBINARY(20) NULL;
CREATE TABLE apart LIKE counted;
ALTER TABLE apart REMOVE PARTITIONING;
ALTER TABLE counted EXCHANGE PARTITION p1 WITH TABLE apart;
SHOW CREATE TABLE counted;
SHOW CREATE TABLE apart;
INSERT INTO counted (b) VALUES ('z');
SELECT * FROM counted;
DROP TABLE counted, apart;

# A row that was moved into a partition raises its counter behind a restart only.
CREATE TABLE moved (a BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, b INT) ENGINE=Inkstone PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (15), PARTITION p1 VALUES LESS THAN MAXVALUE);
INSERT INTO moved (b) VALUES (1);
UPDATE moved SET a = 9223372036854775807;
ALTER TABLE moved ENGINE=Inkstone;
SHOW CREATE TABLE moved;
INSERT INTO moved (b) VALUES (2);
SELECT * FROM moved ORDER BY a;
DROP TABLE moved;

# Ordered covering reads of an index that has but the beginning of a virtual column compare the whole of it.
CREATE TABLE beginnings (c1 LONGTEXT NOT NULL, c3 SMALLINT NOT NULL, c2 LONGTEXT AS (UPPER(c1)) VIRTUAL, c4 VARCHAR(30) AS (REVERSE(LEFT(c1, 30))) VIRTUAL, KEY k5 (c3 DESC, c2(2)), KEY k6 (c4(3), c3)) ENGINE=Inkstone PARTITION BY HASH (c3) PARTITIONS 3;
INSERT INTO beginnings (c1, c3) VALUES ('', 0), ('ab', 1), ('b', 1), ('abcd', 2), ('abc', 3), ('zbc', 3), ('abcdefg', 4), ('abcdefgh', 4), ('xbcdefg', 5);
SELECT DISTINCT c3 FROM beginnings FORCE INDEX (k5) ORDER BY c3;
SELECT c3 FROM beginnings FORCE INDEX (k5) ORDER BY c3;
SELECT c3 FROM beginnings FORCE INDEX (k5) ORDER BY c3 DESC;
SELECT COUNT(*) FROM beginnings FORCE INDEX (k6) WHERE c4 > 'b';
SELECT c3 FROM beginnings FORCE INDEX (k6) ORDER BY c4, c3;
SELECT DISTINCT c3, c2 FROM beginnings FORCE INDEX (k5) ORDER BY c3, c2;
DROP TABLE beginnings;

# Behind a statement that is about no partition the server lets no index of the same open table find rows, but for a range.
CREATE TABLE pruned (c1 VARCHAR(60) NOT NULL, c2 SMALLINT NOT NULL, PRIMARY KEY (c2, c1)) ENGINE=Inkstone PARTITION BY HASH (c2) PARTITIONS 4;
INSERT INTO pruned VALUES ('', 1), ('', 2), ('', 3), ('', 23);
DELETE FROM pruned WHERE c2 BETWEEN 1 AND 0 AND c1 > '';
DELETE FROM pruned WHERE c2 <> 0 ORDER BY c2, c1 LIMIT 3;
SELECT * FROM pruned;
DROP TABLE pruned;
