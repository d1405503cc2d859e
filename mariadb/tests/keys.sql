# Keys of every kind: none, composed, prefix, descending, nullable unique, over all collations.
CREATE TABLE no_key (a INT, b VARCHAR(10)) ENGINE=Inkstone;
INSERT INTO no_key VALUES (1, 'x'), (1, 'x'), (2, NULL), (NULL, 'y');
SELECT * FROM no_key;
UPDATE no_key SET b = 'z' WHERE a = 1 LIMIT 1;
DELETE FROM no_key WHERE a IS NULL;
SELECT * FROM no_key ORDER BY a, b;
CREATE TABLE composed (a INT, b VARCHAR(20), c DATE, v INT, PRIMARY KEY (b, a), UNIQUE ac (a, c), KEY vb (v, b(3))) ENGINE=Inkstone;
INSERT INTO composed VALUES (1, 'one', '2020-01-01', 10), (2, 'one', '2020-01-01', 20), (1, 'two', NULL, 10), (1, 'three', NULL, NULL);
INSERT INTO composed VALUES (1, 'one', '2021-01-01', 1);
INSERT INTO composed VALUES (9, 'nine', '2020-01-01', 1), (1, 'four', '2020-01-01', 1);
SELECT * FROM composed ORDER BY b, a;
INSERT INTO composed VALUES (1, 'one', '2020-01-01', 99) ON DUPLICATE KEY UPDATE v = v + 1, c = '2022-02-02';
REPLACE INTO composed VALUES (2, 'two', '2022-02-02', 5);
# A row that is replaced by itself, or set to what it is, is not changed; columns that are not named get their defaults.
REPLACE INTO composed VALUES (2, 'two', '2022-02-02', 5);
SELECT ROW_COUNT();
UPDATE composed SET v = 5 WHERE a = 2 AND b = 'two';
SELECT ROW_COUNT();
UPDATE composed SET v = 5, c = '2022-02-02' WHERE a = 2;
SELECT ROW_COUNT();
REPLACE INTO composed (a, b) VALUES (2, 'two');
SELECT ROW_COUNT();
REPLACE INTO composed (a, b) VALUES (2, 'two');
SELECT ROW_COUNT();
REPLACE INTO composed VALUES (2, 'two', '2022-02-02', 5), (2, 'two', '2022-02-02', 6);
SELECT ROW_COUNT();
INSERT IGNORE INTO composed VALUES (2, 'two', '2022-02-02', 6), (3, 'three', NULL, 6);
SELECT * FROM composed ORDER BY b, a;
UPDATE composed SET a = a + 10 ORDER BY a DESC;
UPDATE composed SET b = 'same' WHERE b IN ('one', 'two');
UPDATE composed SET a = 13 WHERE b = 'three';
SELECT a, b FROM composed FORCE INDEX (ac) WHERE a >= 11 ORDER BY a, b;
SELECT v, b FROM composed FORCE INDEX (vb) WHERE v = 10 AND b LIKE 'o%';
CREATE TABLE descending (a INT, b INT, s VARCHAR(10), PRIMARY KEY (a DESC), KEY bs (b DESC, s), KEY sb (s, b DESC)) ENGINE=Inkstone;
INSERT INTO descending SELECT seq, seq MOD 7, CONCAT('s', seq MOD 5) FROM seq_1_to_50;
INSERT INTO descending VALUES (99, NULL, NULL), (98, NULL, 's1');
SELECT a FROM descending LIMIT 5;
SELECT a FROM descending ORDER BY a LIMIT 5;
SELECT a, b, s FROM descending FORCE INDEX (bs) WHERE b IN (2, 5) ORDER BY b DESC, s, a;
SELECT b, s FROM descending FORCE INDEX (bs) WHERE b > 5 ORDER BY b DESC, s;
SELECT b, s FROM descending FORCE INDEX (bs) WHERE b < 1 OR b IS NULL ORDER BY b, s;
SELECT s, b FROM descending FORCE INDEX (sb) WHERE s = 's3' AND b BETWEEN 2 AND 4 ORDER BY s, b DESC;
SELECT MIN(a), MAX(a), MIN(b), MAX(b), COUNT(b), COUNT(*) FROM descending;
CREATE TABLE prefix (id INT PRIMARY KEY, f1 LONGBLOB, f2 LONGTEXT, KEY f (f1(10), f2(10)), UNIQUE u (f2(5))) ENGINE=Inkstone CHARACTER SET utf8mb4;
INSERT INTO prefix VALUES (1, REPEAT('a', 100), 'αβγδεζη'), (2, REPEAT('a', 9), 'alpha beta'), (3, NULL, NULL), (4, CONCAT(REPEAT('a', 10), 'b'), 'gamma');
INSERT INTO prefix VALUES (5, 'z', 'alphabet');
INSERT INTO prefix VALUES (5, 'z', 'αβγδεω');
SELECT id FROM prefix FORCE INDEX (f) WHERE f1 >= 'aaaaaaaaa' ORDER BY id;
SELECT id FROM prefix FORCE INDEX (f) WHERE f1 = CONCAT(REPEAT('a', 10), 'b');
SELECT id FROM prefix FORCE INDEX (u) WHERE f2 LIKE 'al%';
CREATE TABLE german (s VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_german2_ci PRIMARY KEY) ENGINE=Inkstone;
INSERT INTO german VALUES ('Aepfel'), ('Öl'), ('Strasse'), ('a'), ('B');
INSERT INTO german VALUES ('Äpfel');
INSERT INTO german VALUES ('Straße');
SELECT s FROM german ORDER BY s;
CREATE TABLE collations (id INT PRIMARY KEY,
  a VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci, b VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  c VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, d VARCHAR(20) CHARACTER SET ucs2 COLLATE ucs2_general_ci,
  e VARCHAR(20) CHARACTER SET utf32 COLLATE utf32_unicode_ci, f CHAR(20) CHARACTER SET latin2 COLLATE latin2_czech_cs,
  g VARCHAR(20) CHARACTER SET cp932 COLLATE cp932_japanese_ci, h VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin,
  i VARCHAR(20) CHARACTER SET utf8mb4 COLLATE uca1400_ai_ci,
  KEY (a), KEY (b), KEY (c), KEY (d), KEY (e), KEY (f), KEY (g), KEY (h), KEY (i)) ENGINE=Inkstone;
INSERT INTO collations SELECT id, s, s, s, s, s, s, s, s, s FROM (
  SELECT 1 AS id, 'a' AS s UNION ALL SELECT 2, 'A' UNION ALL SELECT 3, 'a ' UNION ALL SELECT 4, 'ab' UNION ALL SELECT 5, 'b'
  UNION ALL SELECT 6, '' UNION ALL SELECT 7, 'Z' UNION ALL SELECT 8, 'z9' UNION ALL SELECT 9, 'ch' UNION ALL SELECT 10, 'h' UNION ALL SELECT 11, 'a\tb') x;
INSERT INTO collations (id, a, c, e, i) VALUES (20, 'ä', 'ä', 'ä', 'ä'), (21, 'ß', 'ß', 'ß', 'ß'), (22, 'æ', 'æ', 'æ', 'æ'), (23, '日', '日', '日', '日'), (24, NULL, NULL, NULL, NULL);
SELECT GROUP_CONCAT(id ORDER BY a, id) FROM collations FORCE INDEX (a);
SELECT id FROM collations FORCE INDEX (a) WHERE a = 'A' ORDER BY id;
SELECT id FROM collations FORCE INDEX (b) WHERE b >= 'a' ORDER BY b, id;
SELECT id FROM collations FORCE INDEX (c) WHERE c BETWEEN 'a' AND 'c' ORDER BY c, id;
SELECT id FROM collations FORCE INDEX (d) WHERE d > 'a' ORDER BY d, id;
SELECT id FROM collations FORCE INDEX (e) WHERE e > 'a' ORDER BY e, id;
SELECT id FROM collations FORCE INDEX (f) WHERE f > 'b' ORDER BY f, id;
SELECT id FROM collations FORCE INDEX (g) WHERE g >= 'A' ORDER BY g, id;
SELECT id FROM collations FORCE INDEX (h) WHERE h = 'a' OR h = 'a ' ORDER BY h, id;
SELECT id FROM collations FORCE INDEX (i) WHERE i LIKE 'a%' ORDER BY i, id;
CREATE TABLE too_long (a VARCHAR(4000), KEY (a)) ENGINE=Inkstone CHARACTER SET latin1;
CHECK TABLE no_key, composed, descending, prefix, german, collations EXTENDED;
# A pushed condition on an index that has only the beginning of a column: the entry does not tell where the range ends.
create table beginnings (id int, t varchar(50) not null, b text not null, c char(25) not null, key t_c (t(2) desc, c desc), key b_c (b(3), c)) charset utf8mb4;
insert into beginnings values (1, 'a', 'a', ''), (2, 'zz', 'zz', 'b'), (3, 'zz', 'zz', ''), (4, '0', '0', '0'), (5, 'abcd', 'abcd', ''), (6, 'abce', 'abce', '');
select * from beginnings force index (t_c) where t > '0' and c < 'a' order by id;
select * from beginnings force index (b_c) where b < 'zzz' and c < 'a' order by id;
select * from beginnings force index (b_c) where b between 'abcd' and 'zz' and c < 'a' order by id;
select * from beginnings force index (b_c) where b between 'abcd' and 'zz' and c < 'a' order by b desc, id;
select * from beginnings force index (t_c) where t in ('abcd', 'a', 'zz') and c <> 'b' order by id;
drop table beginnings;
create table beginning (id int, t varchar(50) not null, c char(25) not null default 'x', key t_c (t(2) desc, c desc)) charset latin1;
insert into beginning values (1, 'a', '');
select * from beginning force index (t_c) where t > '0' and c < 'a';
drop table beginning;
# A row that is not wanted is unlocked also where its primary key, a part of a BLOB, was not read.
CREATE TABLE unread (id INT, c BLOB NOT NULL, v INT AS (c IS NULL) VIRTUAL, PRIMARY KEY (id, c(2)), UNIQUE v (v, id)) ENGINE=Inkstone PARTITION BY HASH (id) PARTITIONS 2;
INSERT INTO unread (id, c) SELECT seq, REPEAT('x', seq) FROM seq_1_to_20;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DELETE x FROM unread x JOIN unread y ON x.id = y.v WHERE y.id < 11;
SELECT COUNT(*) FROM unread;
DROP TABLE unread;
# Rows are merged by their positions, which a covering read of another index cannot give where the primary key is a part of a TEXT.
CREATE TABLE merged (a VARCHAR(20), n SMALLINT, t LONGTEXT NOT NULL, PRIMARY KEY (t(2)), KEY n (n DESC)) ENGINE=Inkstone;
INSERT INTO merged VALUES ('', 0, 'ax'), ('', 1, 'b'), ('', 5, 'cxy'), ('', 7, 'dxyz');
SELECT * FROM merged FORCE INDEX (PRIMARY, n) WHERE t LIKE 'a_' OR n = 5;
SELECT * FROM merged FORCE INDEX (PRIMARY, n) WHERE t LIKE 'q_' OR n = 5 OR n = 7;
UPDATE merged x JOIN merged y ON x.a = y.a SET x.a = 'y' WHERE y.t LIKE 'q_' OR y.n = 5;
SELECT * FROM merged;
DROP TABLE merged;

# HANDLER turns round behind the last row, before the first, and at the ends of a range.
CREATE TABLE turns (a INT PRIMARY KEY, b INT, KEY kb (b)) ENGINE=Inkstone;
INSERT INTO turns VALUES (1, 10), (2, 20), (3, 20), (4, 40);
HANDLER turns OPEN AS h;
HANDLER h READ `PRIMARY` FIRST WHERE a > 9 LIMIT 5;
HANDLER h READ `PRIMARY` PREV LIMIT 2;
HANDLER h READ `PRIMARY` PREV LIMIT 5;
HANDLER h READ `PRIMARY` NEXT LIMIT 2;
HANDLER h READ kb = (20) LIMIT 5;
HANDLER h READ kb PREV;
HANDLER h READ kb = (20) LIMIT 5;
HANDLER h READ kb NEXT;
HANDLER h READ kb = (30);
HANDLER h READ kb PREV;
HANDLER h READ kb < (20) LIMIT 5;
HANDLER h READ kb NEXT;
HANDLER h READ kb = (5);
HANDLER h READ kb NEXT;
HANDLER h READ kb < (5);
HANDLER h READ kb NEXT;
HANDLER h READ `PRIMARY` = (2) LIMIT 5;
HANDLER h READ `PRIMARY` PREV LIMIT 2;
HANDLER h READ `PRIMARY` = (2) LIMIT 5;
HANDLER h READ `PRIMARY` NEXT;
HANDLER h READ `PRIMARY` = (7);
HANDLER h READ `PRIMARY` PREV;
HANDLER h CLOSE;
DROP TABLE turns;

# An UPDATE cannot empty a geometry.
CREATE TABLE places (a INT PRIMARY KEY, p POINT NOT NULL) ENGINE=Inkstone;
INSERT INTO places VALUES (1, POINT(1, 2));
SET sql_mode = '';
INSERT INTO places (a) VALUES (1) ON DUPLICATE KEY UPDATE p = VALUES(p);
SET sql_mode = DEFAULT;
SELECT a, HEX(p) FROM places;
DROP TABLE places;
