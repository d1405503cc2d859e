create table v (id int primary key, a int, b int as (a*2) virtual, c int as (a+1) stored, d varchar(30) as (concat('x',a)) virtual, e text as (repeat('y',a)) virtual, key(b), key(c), key(d), unique key(a,b), key(e(5)));
insert into v(id,a) values (1,1),(2,2),(3,null),(4,40);
select * from v order by id; select id from v where b=4; select b from v where b>0 order by b; select id,d from v where d='x40'; select id from v where c=41; select e from v where e like 'yy%' order by id;
update v set a=a+1 where b=4; select * from v order by id; update v set a=50 where d='x40'; select id,b,d from v where b=100; delete from v where b=6; select id,b from v force index(b) order by b;
insert into v(id,a) values (9,50); replace into v(id,a) values (9,50); insert into v(id,a) values (1,70) on duplicate key update a=70; select * from v order by id;
check table v;
alter table v add f int as (a*a) virtual; select id,f from v order by id; alter table v add key(f); select id from v where f=4900; check table v; alter table v drop column f;
create table w (id int primary key, a int, v int as (a%3) persistent, check (a<100), constraint c1 check (a<>7)); insert into w(id,a) values (1,5); insert into w(id,a) values (2,100); insert into w(id,a) values (3,7); update w set a=7; update w set a=8; select * from w;
create table hp (a int, b int as (a mod 4) virtual, c int) partition by list (a mod 2) (partition p0 values in (0), partition p1 values in (1)); insert into hp(a,c) values (1,1),(2,2),(3,3),(4,4); select * from hp order by a; update hp set a=a+1 order by a desc; select * from hp order by a; select * from hp partition(p0) order by a; alter table hp truncate partition p0; select * from hp order by a;
create table p (id int, d date, v int, primary key(id,d), key(v)) partition by range (year(d)) (partition a values less than (2000), partition b values less than (2010), partition c values less than maxvalue);
insert into p values (1,'1999-01-01',1),(2,'2005-01-01',2),(3,'2015-01-01',3),(4,'2005-05-05',1); select * from p order by id; select * from p where v=1 order by id; explain partitions select * from p where d='2005-01-01'; update p set d='2020-01-01' where id=1; select * from p partition(c) order by id; alter table p drop partition b; select * from p order by id; alter table p reorganize partition c into (partition c values less than (2018), partition d values less than maxvalue); select * from p partition(d); alter table p coalesce partition 1; delete from p where v=3; select * from p order by v; create table ex like p; alter table ex remove partitioning; alter table p exchange partition d with table ex; select * from ex; select * from p; alter table p remove partitioning; select * from p; rename table p to q; drop table q;
create table hh (id int auto_increment primary key, v int, unique(id)) partition by hash(id) partitions 4; insert into hh(v) values (1),(2),(3),(4),(5); select * from hh order by id; select max(id) from hh; update hh set id=id+10 order by id desc; select * from hh order by id; truncate hh; insert into hh(v) values (1); select * from hh;
create table lu (a text, b int, unique(a)); insert into lu values ('x',1),('y',2); insert into lu values ('x',3); insert into lu values (null,1),(null,2); insert into lu values (repeat('z',5000),1); insert into lu values (repeat('z',5000),2); insert ignore into lu values ('q',1),('q',2),('x',5); update lu set a='y' where b=1 and a='x'; select left(a,3),b from lu order by a,b; replace into lu values ('x',77); select left(a,3),b from lu order by a,b;
create table sv (id int primary key, a int) with system versioning; insert into sv values (1,1); update sv set a=2; delete from sv; select count(*) from sv for system_time all; select * from sv;
create table per (id int, s date, e date, period for p(s,e), unique(id, p without overlaps)); insert into per values (1,'2020-01-01','2020-02-01'); insert into per values (1,'2020-01-15','2020-03-01'); insert into per values (1,'2020-02-01','2020-03-01'),(1,'2020-02-15','2020-02-20'); select * from per; delete from per for portion of p from '2020-01-10' to '2020-01-20'; select * from per order by s;
create table ig (a int, b int, key(a) ignored); insert into ig values (1,1); select * from ig where a=1;
create table inv (a int, b int invisible default 5, key(b)); insert into inv values (1); select a,b from inv where b=5;
create table de (a int, b int, c int, key(a desc, b), key(b desc, a desc)); insert into de select seq%5, seq%7, seq from seq_1_to_70; insert into de values (null,1,0),(1,null,0),(null,null,0); select a,b,count(*) from de force index(a) where a>=3 group by a,b order by a desc,b; select a from de force index(a) where a is null; select b,a from de force index(b) where b=3 order by b desc, a desc limit 3; select a,b from de where a<2 order by a desc, b limit 20; select a,b from de where a=2 order by b desc limit 5; select max(a),min(a),max(b),min(b) from de; select a,max(b),min(b) from de group by a; select distinct a from de;

# A row that is replaced is not computed over the one that replaces it.
CREATE TABLE replaced (a TEXT, b INT, c INT NOT NULL AUTO_INCREMENT, d TEXT AS (UPPER(a)) VIRTUAL, PRIMARY KEY (c), UNIQUE KEY kb (b), KEY kd (d(2))) ENGINE=Inkstone;
INSERT INTO replaced (a, b) VALUES ('a', 0);
REPLACE INTO replaced (a, b, c) VALUES ('x', 0, 0);
INSERT INTO replaced (a, b) VALUES ('y', 0) ON DUPLICATE KEY UPDATE a = 'z';
CHECK TABLE replaced EXTENDED;
SELECT d FROM replaced FORCE INDEX (kd);
DROP TABLE replaced;
CREATE TABLE replaced (a TEXT, b INT, d TEXT AS (UPPER(a)) VIRTUAL, UNIQUE KEY kb (b), KEY kd (d(2))) ENGINE=Inkstone PARTITION BY HASH (b) PARTITIONS 3;
INSERT INTO replaced (a, b) VALUES ('a', 0), ('f', 1), ('b', 2), ('e', 3), ('c', 4), ('d', 5);
REPLACE INTO replaced (a, b) VALUES ('x', 0);
CHECK TABLE replaced EXTENDED;
SELECT d, a, b FROM replaced FORCE INDEX (kd) ORDER BY d;
HANDLER replaced OPEN AS h;
HANDLER h READ kb LAST LIMIT 2;
HANDLER h READ kb PREV LIMIT 3;
HANDLER h CLOSE;
DROP TABLE replaced;

# LOAD DATA computes virtual columns before the trigger changes the row: an index has the row's value all the same.
CREATE TABLE loaded (a INT PRIMARY KEY, b INT, c INT AS (b + 1) VIRTUAL, t TINYTEXT, KEY kc (c), UNIQUE KEY kt (t, b)) ENGINE=Inkstone;
INSERT INTO loaded (a, b, t) VALUES (1, 5, 'x'), (2, 6, 'y');
SELECT a, b, t INTO OUTFILE '../loaded-Inkstone' FROM loaded;
DELETE FROM loaded;
CREATE TRIGGER higher BEFORE INSERT ON loaded FOR EACH ROW SET NEW.b = NEW.b + 10;
LOAD DATA INFILE '../loaded-Inkstone' INTO TABLE loaded (a, b, t);
SELECT * FROM loaded USE INDEX () ORDER BY a;
UPDATE loaded SET b = 3 WHERE a = 1;
SELECT * FROM loaded USE INDEX () ORDER BY a;
DELETE FROM loaded;
DROP TABLE loaded;

# Indexes that are merged: the server says of the first one that it reads by keys only, and computes nothing for the others, whose range's end it compares with the row.
CREATE TABLE merged (a INT NOT NULL, b BIGINT AS (a DIV 2) VIRTUAL, c VARCHAR(20) AS (CONCAT('n', a)) VIRTUAL, d INT, KEY ka (a), KEY kb (b), KEY kc (c), KEY kd (d, c(1))) ENGINE=Inkstone;
INSERT INTO merged (a, d) SELECT seq, seq * 3 FROM seq_80_to_400;
INSERT INTO merged (a, d) VALUES (0, 1);
ANALYZE TABLE merged;
EXPLAIN SELECT * FROM merged FORCE INDEX (ka, kb) WHERE a = 1 OR b < 1;
SELECT * FROM merged FORCE INDEX (ka, kb) WHERE a = 1 OR b < 1;
SELECT * FROM merged FORCE INDEX (ka, kb) WHERE a = 85 OR b < 42 ORDER BY a;
SELECT * FROM merged FORCE INDEX (ka, kc) WHERE a < 82 OR c > 'n98' ORDER BY a;
SELECT * FROM merged FORCE INDEX (kc, kb) WHERE b < 41 OR c BETWEEN 'n1' AND 'n101' ORDER BY a;
SELECT * FROM merged FORCE INDEX (kb, kd) WHERE b = 45 OR (d = 300 AND c < 'n2') OR d < 5 ORDER BY a;
UPDATE merged SET d = d + 1 WHERE a = 1 OR b < 1 ORDER BY a;
DELETE FROM merged WHERE a = 399 OR b > 199 ORDER BY a;
SELECT COUNT(*), SUM(d) FROM merged;
ALTER TABLE merged PARTITION BY HASH (a) PARTITIONS 3;
SELECT * FROM merged FORCE INDEX (ka, kb) WHERE a = 85 OR b < 42 ORDER BY a;
SELECT * FROM merged FORCE INDEX (kc, kb) WHERE b < 41 OR c BETWEEN 'n1' AND 'n101' ORDER BY a;
DROP TABLE merged;
