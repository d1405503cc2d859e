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

set sql_mode='NO_AUTO_VALUE_ON_ZERO'; insert into a values (0,5); insert into a values (null,6); select * from a order by id;
create table no_zero (id int auto_increment primary key); insert into no_zero values (0),(null); select * from no_zero; set sql_mode=default;
create table g like a; insert into g(v) values (1); select * from g; show create table g;
create table h select * from a; show create table h;
insert into a(v) select seq from seq_1_to_100; select max(id) from a; insert into a(v) values (0); select max(id) from a;
insert into a(id,v) values (null,1),(300,2),(null,3); select * from a where id>227 order by id; insert into a(v) values (4); select max(id) from a;
