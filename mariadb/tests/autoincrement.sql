# AUTO_INCREMENT: after explicit values, duplicates, rollback, delete, ALTER and TRUNCATE, with another
# increment, at the end of the type.
create table a (id int auto_increment primary key, v int);
insert into a(v) values (1),(2),(3); select last_insert_id(); select * from a order by id;
insert into a values (10,10); insert into a(v) values (11); insert into a values (0,12),(null,13),(5,14),(null,15); select * from a order by id;
show create table a;
insert into a values (5,1); insert into a(v) values (16); select * from a order by id;
insert ignore into a values (5,1),(null,17); insert into a(v) values (18); select * from a order by id;
insert into a values (5,1) on duplicate key update v=100; insert into a(v) values (19); select * from a order by id;
insert into a values (5,1) on duplicate key update id=200; insert into a(v) values (20); select * from a order by id;
replace into a values (5,1),(null,2); insert into a(v) values (21); select * from a order by id;
select auto_increment from information_schema.tables where table_schema=database() and table_name='a';
update a set id=500 where id=10; insert into a(v) values (22); select max(id) from a;
begin; insert into a(v) values (1),(2); rollback; insert into a(v) values (23); select max(id) from a;
insert into a(v) select v from a; select count(*), max(id) from a; insert into a(v) values (24); select max(id) from a;
set auto_increment_increment=10, auto_increment_offset=3; insert into a(v) values (1),(2); select id from a order by id desc limit 2; insert into a values (7000,1); insert into a(v) values (1); select max(id) from a; set auto_increment_increment=default, auto_increment_offset=default;
insert into a(v) values (1); select max(id) from a;
alter table a auto_increment=20000; insert into a(v) values (1); select max(id) from a; alter table a auto_increment=5; insert into a(v) values (1); select max(id) from a;
delete from a where id>10000; insert into a(v) values (1); select max(id) from a;
delete from a; insert into a(v) values (1); select * from a; truncate a; insert into a(v) values (1); select * from a;

# The ends of types, negative values, other types.
create table b (x tinyint unsigned auto_increment, y int, key(x)) auto_increment=250; insert into b(y) values (1),(2),(3),(4),(5); insert into b(y) values (6); insert into b(y) values (7); select * from b order by x;
create table small (id tinyint auto_increment primary key) auto_increment=126; insert into small values (),(); insert into small values (); select * from small;
create table c (x bigint unsigned auto_increment primary key); insert into c values (18446744073709551613); insert into c values (null); insert into c values (null); select * from c;
create table d (x int auto_increment primary key); insert into d values (-5),(null),(-1),(null); select * from d; insert into d values (2147483647); insert into d values (null); select * from d;
create table f (id float auto_increment primary key, v int); insert into f(v) values (1),(2); select * from f;

# In the second place of a key.
create table e (k int, id int auto_increment, primary key(k,id), key(id)); insert into e(k) values (1),(1),(2); select * from e order by k,id;
create table second (k int, id bigint unsigned not null auto_increment, primary key(k,id), key(id)); insert into second(k) values (1),(1),(2); select * from second order by id;
create table second_only (k int, id int auto_increment, primary key(k,id));

# Values that another unique key refuses.
create table u (id int auto_increment primary key, v int unique);
insert into u(v) values (1),(2),(3); begin; insert into u(v) values (4); rollback; insert into u(v) values (5);
insert into u values (100,100); insert into u(v) values (6); insert ignore into u(v) values (6),(7); insert into u(v) values (7) on duplicate key update v=70; insert into u(v) values (8);
insert into u values (0,9),(null,10),(-5,11); select * from u order by id;
update u set id=900 where v=8; insert into u(v) values (12); select max(id) from u;
truncate u; insert into u(v) select seq+10 from seq_1_to_5; insert into u(v) values (99); select id, v from u where v=99;

# Statements that fail count the rows that they tried, and no others; LAST_INSERT_ID() is of a row that was inserted.
create table w (id int auto_increment primary key, v int unique);
insert into w values (1,1),(2,2),(5,2),(100,100); insert into w(v) values (3); select * from w order by id;
insert into w(v) values (4),(5),(6); insert into w values (null,6),(24,3),(3,12); select last_insert_id(); insert into w(v) values (7); select max(id) from w;
insert into w values (null,8),(24,3); select last_insert_id();
insert into w select if(seq<4,seq+40,null), seq from seq_1_to_7; insert into w(v) values (9); select max(id) from w;
insert into w values (200,200),(null,7),(null,201); insert into w(v) values (10); select max(id) from w;
insert into w(v) values (4),(5),(11) on duplicate key update id=id+300; select * from w order by id;
update w set id=id where v<100; update w set id=id+1 where v=11; insert into w(v) values (12); select max(id) from w;
create table small_unsigned (id smallint unsigned auto_increment primary key, v int unique); insert into small_unsigned values (21,11),(24,3),(11,3),(-2,8),(7,12); show warnings;
# One count of rows to come for all tables of a statement.
create table logged (id int auto_increment primary key, v int); create trigger on_w before insert on w for each row insert into logged(v) values (new.v);
insert into w(v) values (601),(602),(603),(604); insert into w(v) values (605); select * from logged; select max(id) from w; drop trigger on_w;
# ALTER, RENAME and FLUSH keep what was reserved; TRUNCATE forgets it.
create table x (id int auto_increment primary key, v int unique, w int) auto_increment=61; optimize table x; show create table x;
insert ignore into x(v) values (1),(1),(1),(2); flush tables; select auto_increment from information_schema.tables where table_schema=database() and table_name='x';
alter table x add key (w); alter table x add column z int; alter table x force; alter table x engine=Inkstone; show create table x;
alter table x auto_increment=3; rename table x to y; insert into y(v) values (3); select * from y order by id; flush tables;
insert into y(v) values (3),(4),(5); alter table y auto_increment=0; show create table y; alter table y auto_increment=500, algorithm=copy; insert into y(v) values (4); select max(id) from y;
# With virtual columns an ALTER in place forgets what was reserved, as a restart does.
create table v (a int not null auto_increment, b int unique, c int default 0, d bigint as (b div 2) virtual, key k (a)); insert into v(b) values (1),(2),(3); insert ignore into v(b) values (1),(2),(3); insert ignore into v(b) values (1),(2),(3); show create table v;
create table va like v; insert into va(b) select b from v; alter table va comment='x'; alter table v alter c set default 5; show create table v; alter table v add key (c); show create table v; alter table v rename key k to kk; show create table v;
insert ignore into v(b) values (1),(2); alter table v modify c int first; show create table v; alter table v drop key kk, add key k (a); show create table v; update v set a=50 where b=3; alter table v add column e int; show create table v; alter table v drop column d; show create table v;
create table vt (a tinyint not null auto_increment, b int, d int as (b) virtual, key (a)); alter table vt auto_increment=300; show create table vt; insert into vt(b) values (1),(2); alter table vt auto_increment=300; show create table vt;
create table vm (a bigint unsigned auto_increment primary key, b int); insert into vm values (1,1); update vm set a=18446744073709551615; insert into vm(b) values (2);
# A restart goes on behind the rows.
create table after_restart (id int auto_increment primary key, v int unique) auto_increment=10; create table deleted like after_restart; create table raised like after_restart; create table lowered (id int auto_increment primary key); create table never (id int auto_increment primary key) auto_increment=77;
insert ignore into after_restart(v) values (1),(1),(1),(1),(2); begin; insert into after_restart(v) values (3); rollback; show create table after_restart;
insert into deleted(v) values (1),(2),(3); delete from deleted; insert into raised values (1,1); update raised set id=5; insert into lowered values (1),(2),(300); delete from lowered where id=300; alter table lowered auto_increment=4;
create table negative (id int auto_increment primary key); insert into negative values (-5); create table highest (id tinyint auto_increment primary key); insert into highest values (127);
create table hidden (id int auto_increment unique, p int) partition by hash(p) partitions 3; insert into hidden(p) values (1),(2),(3),(4); delete from hidden where p=4;
create table beyond (id smallint auto_increment primary key, v int); insert into beyond(v) values (1); update beyond set id=32767; create table defined (id tinyint auto_increment primary key) auto_increment=200; create table beyond_parts (id tinyint auto_increment primary key) auto_increment=200 partition by hash(id) partitions 2; insert into beyond_parts values (3),(8);
create table failed (id smallint auto_increment primary key, v int); insert into failed(v) values (1),(2),(3); update failed set id=32766+v order by id; flush tables; show create table beyond; show create table defined; show create table beyond_parts; show create table failed;
# restart
show create table beyond; show create table defined; show create table beyond_parts; show create table failed; insert into beyond(v) values (2); insert into defined values (null); select * from defined; insert into beyond_parts values (null); select * from beyond_parts order by id; insert into failed(v) values (9); select * from failed order by id;
show create table after_restart; insert into after_restart(v) values (6); select * from after_restart order by id;
insert into deleted(v) values (9); select * from deleted; insert into raised(v) values (9); select * from raised; insert into lowered values (null); select * from lowered; insert into never values (null); select * from never;
insert into negative values (null); select * from negative; insert into highest values (null); insert into hidden(p) values (8); select * from hidden order by id;

set sql_mode='NO_AUTO_VALUE_ON_ZERO'; insert into a values (0,5); insert into a values (null,6); select * from a order by id;
create table no_zero (id int auto_increment primary key); insert into no_zero values (0),(null); select * from no_zero; set sql_mode=default;
create table g like a; insert into g(v) values (1); select * from g; show create table g;
create table h select * from a; show create table h;
insert into a(v) select seq from seq_1_to_100; select max(id) from a; insert into a(v) values (0); select max(id) from a;
insert into a(id,v) values (null,1),(300,2),(null,3); select * from a where id>227 order by id; insert into a(v) values (4); select max(id) from a;

# A counter that is lowered is noted as behind the greatest value, and goes on by the session's steps.
SET auto_increment_increment = 5, auto_increment_offset = 2;
CREATE TABLE lowered (a INT NOT NULL AUTO_INCREMENT PRIMARY KEY, b INT) ENGINE=Inkstone;
ALTER TABLE lowered AUTO_INCREMENT=126;
INSERT INTO lowered (b) VALUES (1);
ALTER TABLE lowered ADD COLUMN c INT AS (b + 1) VIRTUAL, AUTO_INCREMENT=126;
SHOW CREATE TABLE lowered;
INSERT INTO lowered (b) VALUES (2);
SELECT * FROM lowered;
ALTER TABLE lowered AUTO_INCREMENT=3;
SHOW CREATE TABLE lowered;
SET auto_increment_increment = DEFAULT, auto_increment_offset = DEFAULT;
DROP TABLE lowered;

# Negative values.
CREATE TABLE negative (a SMALLINT NOT NULL AUTO_INCREMENT PRIMARY KEY) ENGINE=Inkstone;
INSERT INTO negative VALUES ();
INSERT IGNORE INTO negative VALUES (-5), (0);
SELECT LAST_INSERT_ID();
INSERT INTO negative VALUES (-6), (0), (0);
INSERT INTO negative VALUES (-7);
INSERT INTO negative VALUES (0), (-8), (0);
UPDATE negative SET a = -9 WHERE a = 1;
INSERT INTO negative VALUES (0);
SELECT * FROM negative;
DROP TABLE negative;

# The greatest number that there is.
CREATE TABLE greatest_of_all (a BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, b INT, c INT AS (b + 1) VIRTUAL, KEY kb (b)) ENGINE=Inkstone;
INSERT INTO greatest_of_all (a, b) VALUES (18446744073709551615, 1);
ALTER TABLE greatest_of_all RENAME INDEX kb TO kb2;
SHOW CREATE TABLE greatest_of_all;
INSERT INTO greatest_of_all (b) VALUES (2);
SELECT * FROM greatest_of_all;
DROP TABLE greatest_of_all;

# A key that is sorted the other way round.
CREATE TABLE descending (a INT UNSIGNED NOT NULL AUTO_INCREMENT, UNIQUE KEY ka (a DESC)) ENGINE=Inkstone;
INSERT INTO descending VALUES (), (), ();
ALTER TABLE descending AUTO_INCREMENT = 1;
SHOW CREATE TABLE descending;
INSERT INTO descending VALUES ();
SELECT * FROM descending ORDER BY a;
DROP TABLE descending;

# An ALTER that InnoDB copies gives each partition the table's counter.
SET auto_increment_increment = 5, auto_increment_offset = 2;
CREATE TABLE parts (b DATETIME NULL, a INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, c INT AS (YEAR(b)) VIRTUAL) ENGINE=Inkstone PARTITION BY LIST (a) (PARTITION p0 VALUES IN (4, 7), PARTITION p1 VALUES IN (8, 12));
INSERT INTO parts (b) VALUES ('2020-02-03');
INSERT INTO parts (b) VALUES ('2020-02-03');
SHOW CREATE TABLE parts;
ALTER TABLE parts ADD COLUMN d TINYINT NULL FIRST;
SHOW CREATE TABLE parts;
INSERT INTO parts (b) VALUES ('2020-02-03');
FLUSH TABLES;
SHOW CREATE TABLE parts;
SELECT * FROM parts;
SET auto_increment_increment = DEFAULT, auto_increment_offset = DEFAULT;
DROP TABLE parts;

# Longer VARCHARs that InnoDB's rows need not know of are no copy there: with a virtual column what was reserved is forgotten.
CREATE TABLE longer (a INT AUTO_INCREMENT PRIMARY KEY, b VARCHAR(1) CHARACTER SET utf16, c INT CHECK (c < 9), d INT AS (c + 1) VIRTUAL) ENGINE=Inkstone;
INSERT INTO longer (b, c) VALUES ('x', 1), ('y', 10);
ALTER TABLE longer MODIFY COLUMN b VARCHAR(256) CHARACTER SET utf16;
SHOW CREATE TABLE longer;
INSERT INTO longer (b, c) VALUES ('x', 1), ('y', 10);
ALTER TABLE longer MODIFY COLUMN b VARCHAR(257) CHARACTER SET utf16;
SHOW CREATE TABLE longer;
ALTER TABLE longer MODIFY COLUMN b VARCHAR(120) CHARACTER SET utf16;
INSERT INTO longer (b, c) VALUES ('x', 1), ('y', 10);
ALTER TABLE longer MODIFY COLUMN b VARCHAR(257) CHARACTER SET utf16;
SHOW CREATE TABLE longer;
DROP TABLE longer;

# Beside an indexed virtual column, too.
CREATE TABLE longer (a INT AUTO_INCREMENT PRIMARY KEY, b VARCHAR(1), c INT CHECK (c < 9), d INT AS (c + 1) VIRTUAL, KEY kd (d)) ENGINE=Inkstone;
INSERT INTO longer (b, c) VALUES ('x', 1), ('y', 10);
ALTER TABLE longer MODIFY COLUMN b VARCHAR(20);
SHOW CREATE TABLE longer;
DROP TABLE longer;

# InnoDB copies for a TIMESTAMP that is NULL no more, and for a default that differs from row to row: what was reserved is noted.
CREATE TABLE present (a INT AUTO_INCREMENT PRIMARY KEY, b INT, c TIMESTAMP NULL, d INT AS (b + 1) VIRTUAL) ENGINE=Inkstone;
INSERT INTO present (b) VALUES (1), ('x');
ALTER TABLE present MODIFY COLUMN b INT NOT NULL;
ALTER TABLE present ADD KEY kd (d);
SHOW CREATE TABLE present;
INSERT INTO present (b) VALUES (1), ('x');
ALTER TABLE present MODIFY COLUMN c TIMESTAMP NOT NULL DEFAULT '2001-01-01 00:00:00';
ALTER TABLE present DROP KEY kd;
SHOW CREATE TABLE present;
INSERT INTO present (b) VALUES (1), ('x');
ALTER TABLE present ADD COLUMN e INT DEFAULT (b), ADD COLUMN f DATETIME DEFAULT NOW();
ALTER TABLE present ADD KEY kd (d);
SHOW CREATE TABLE present;
INSERT INTO present (b) VALUES (1), ('x');
ALTER TABLE present ADD COLUMN g VARCHAR(20) DEFAULT (DATABASE()), ADD COLUMN h INT DEFAULT (1 + 1);
ALTER TABLE present DROP KEY kd;
SHOW CREATE TABLE present;
DROP TABLE present;

# A row format that is named makes a table anew in InnoDB, and what was reserved stays; in the oldest one a column takes NULLs without that.
CREATE TABLE formats (a INT AUTO_INCREMENT PRIMARY KEY, b INT NOT NULL CHECK (b < 9), c INT AS (b + 1) VIRTUAL) ENGINE=Inkstone;
INSERT INTO formats (b) VALUES (1), (10);
ALTER TABLE formats COMMENT = 'x';
SHOW CREATE TABLE formats;
INSERT INTO formats (b) VALUES (1), (10);
ALTER TABLE formats ROW_FORMAT = REDUNDANT;
SHOW CREATE TABLE formats;
INSERT INTO formats (b) VALUES (1), (10);
ALTER TABLE formats MODIFY b INT;
SHOW CREATE TABLE formats;
ALTER TABLE formats MODIFY b INT NOT NULL;
INSERT INTO formats (b) VALUES (1), (10);
ALTER TABLE formats MODIFY b INT, ADD KEY kb (b);
SHOW CREATE TABLE formats;
ALTER TABLE formats ROW_FORMAT = COMPACT;
SHOW CREATE TABLE formats;
ALTER TABLE formats MODIFY b INT NOT NULL;
INSERT INTO formats (b) VALUES (1), (10);
ALTER TABLE formats MODIFY b INT;
SHOW CREATE TABLE formats;
INSERT INTO formats (b) VALUES (1), (10);
ALTER TABLE formats ROW_FORMAT = DEFAULT, DROP KEY kb;
SHOW CREATE TABLE formats;
DROP TABLE formats;

# An UPDATE that changes the primary key notes its value though a key refuses the row.
CREATE TABLE refused (a INT AUTO_INCREMENT PRIMARY KEY, b INT UNIQUE, c INT AS (b + 1) VIRTUAL) ENGINE=Inkstone;
INSERT INTO refused (b) VALUES (1), (2);
UPDATE refused SET a = 30, b = 2 WHERE a = 1;
SHOW CREATE TABLE refused;
ALTER TABLE refused ADD KEY kc (c);
SHOW CREATE TABLE refused;
UPDATE refused SET a = 2 WHERE a = 1;
UPDATE refused SET a = 40, b = 2 WHERE b = 1;
# restart
SHOW CREATE TABLE refused;
SELECT * FROM refused;
DROP TABLE refused;

# A table's counter that has run over is none for its partitions.
CREATE TABLE run_over (a BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, b INT, c INT AS (b) VIRTUAL) ENGINE=Inkstone PARTITION BY HASH (a) PARTITIONS 3;
INSERT INTO run_over (a, b) VALUES (18446744073709551615, 1);
ALTER TABLE run_over ADD COLUMN d INT AS (b) VIRTUAL;
DELETE FROM run_over;
INSERT INTO run_over (b) VALUES (1);
ALTER TABLE run_over ADD COLUMN e INT FIRST;
SHOW CREATE TABLE run_over;
INSERT INTO run_over (b) VALUES (1);
SELECT * FROM run_over;
DROP TABLE run_over;

# A counter that was noted beyond its type, and an ALTER that opens the table anew in InnoDB.
CREATE TABLE beyond (a TINYINT NOT NULL AUTO_INCREMENT PRIMARY KEY, b INT UNIQUE, c INT, d INT AS (b) VIRTUAL) ENGINE=Inkstone;
REPLACE INTO beyond (a, b) VALUES (NULL, 1), (127, 1);
ALTER TABLE beyond DROP COLUMN c;
SHOW CREATE TABLE beyond;
SELECT * FROM beyond;
DROP TABLE beyond;

# A VARCHAR of the primary key that grows beyond 255 bytes, and a new index: InnoDB opens the table anew, and what was reserved is forgotten. Without an index it is not, nor where rows are made anew.
CREATE TABLE grown (a INT NOT NULL AUTO_INCREMENT, b VARCHAR(20) NOT NULL, c INT CHECK (c < 9), d INT, PRIMARY KEY (a, b(1))) ENGINE=Inkstone DEFAULT CHARSET=utf8mb3;
INSERT INTO grown (b, c) VALUES ('', 1), ('', 10);
ALTER TABLE grown MODIFY b VARCHAR(40) NOT NULL, ADD KEY kd (d);
SHOW CREATE TABLE grown;
ALTER TABLE grown MODIFY b VARCHAR(300) NOT NULL, DROP KEY kd, ADD UNIQUE kc (c);
SHOW CREATE TABLE grown;
INSERT INTO grown (b, c) VALUES ('', 2), ('', 10);
ALTER TABLE grown MODIFY b VARCHAR(400) NOT NULL, ADD KEY kd (d);
SHOW CREATE TABLE grown;
DROP TABLE grown;
CREATE TABLE grown (a INT NOT NULL AUTO_INCREMENT, b VARCHAR(20) NOT NULL, c INT CHECK (c < 9), d INT, PRIMARY KEY (a, b)) ENGINE=Inkstone DEFAULT CHARSET=utf8mb3;
INSERT INTO grown (b, c) VALUES ('', 1), ('', 10);
ALTER TABLE grown MODIFY b VARCHAR(300) NOT NULL, ADD KEY kd (d), ADD e INT FIRST;
SHOW CREATE TABLE grown;
DROP TABLE grown;

# So it is where only the new index has the column. One that is there and goes on with it need not know.
CREATE TABLE grown (a INT NOT NULL AUTO_INCREMENT PRIMARY KEY, b VARCHAR(20) NOT NULL, c INT CHECK (c < 9), KEY kb (b)) ENGINE=Inkstone DEFAULT CHARSET=utf8mb4;
INSERT INTO grown (b, c) VALUES ('', 1), ('', 10);
ALTER TABLE grown MODIFY b VARCHAR(200) NOT NULL, ADD KEY kc (c);
SHOW CREATE TABLE grown;
DROP TABLE grown;
CREATE TABLE grown (a INT NOT NULL AUTO_INCREMENT PRIMARY KEY, b VARCHAR(20) NOT NULL, c INT CHECK (c < 9), KEY kb (b)) ENGINE=Inkstone DEFAULT CHARSET=utf8mb4;
INSERT INTO grown (b, c) VALUES ('', 1), ('', 10);
ALTER TABLE grown MODIFY b VARCHAR(200) NOT NULL, ADD KEY kcb (c, b(3));
SHOW CREATE TABLE grown;
DROP TABLE grown;

# An index of a virtual column that is added while another is dropped is a copy: what was reserved is noted.
CREATE TABLE virtuals (a INT NOT NULL AUTO_INCREMENT PRIMARY KEY, b INT CHECK (b < 9), c INT AS (b) VIRTUAL, d INT AS (b + 1) VIRTUAL) ENGINE=Inkstone;
INSERT INTO virtuals (b) VALUES (1), (10);
ALTER TABLE virtuals DROP COLUMN c, ADD COLUMN e INT AS (b) VIRTUAL, ADD KEY ke (b, e);
SHOW CREATE TABLE virtuals;
ALTER TABLE virtuals DROP COLUMN d, ADD COLUMN f INT AS (b) VIRTUAL, ADD KEY kb (b);
SHOW CREATE TABLE virtuals;
INSERT INTO virtuals (b) VALUES (1), (10);
ALTER TABLE virtuals DROP COLUMN f, ADD COLUMN g INT AS (b) VIRTUAL, ADD KEY kb2 (b);
SHOW CREATE TABLE virtuals;
DROP TABLE virtuals;

# An UPDATE that moves a row to another partition is counted by the table alone; a copy counts the rows.
CREATE TABLE moved (a INT NOT NULL AUTO_INCREMENT PRIMARY KEY, b INT) ENGINE=Inkstone PARTITION BY HASH (a) PARTITIONS 5;
INSERT INTO moved VALUES (NULL, 1), (NULL, 2);
UPDATE moved SET a = a + 1 ORDER BY a DESC;
FLUSH TABLES;
ALTER TABLE moved ADD COLUMN c INT AS (b) VIRTUAL;
SHOW CREATE TABLE moved;
INSERT INTO moved (b) VALUES (3);
SELECT * FROM moved ORDER BY a;
ALTER TABLE moved AUTO_INCREMENT = 2;
SHOW CREATE TABLE moved;
DROP TABLE moved;
