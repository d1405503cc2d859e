# Keys whose images are longer than the engine's keys: they are cut in the tree, and sort and compare as if they were not.
set names utf8mb4;
delimiter //
# Every way to read an index, over rows of which many begin alike for longer than a key is.
create procedure read_all(in hint varchar(60), in col varchar(20), in low varchar(60), in high varchar(60))
begin
  declare a varchar(100) default concat('(select ', col, ' from long_ where id=', low, ')');
  declare b varchar(100) default concat('(select ', col, ' from long_ where id=', high, ')');
  declare f varchar(100) default concat(' from long_ force index(', hint, ') ');
  declare i int default 0;
  declare conditions text default 'X is null|X is not null|X = L|X >= L|X > L|X < L|X <= L|X between L and H|X > L and X < H|X >= L and X < H|X > L and X <= H|X in (L, H)|X <> L|X < L or X > H|X like concat(left(L, 700), ''%'')|X = L and id > 10|X > L and length(X) > 100';
  execute immediate concat('select group_concat(id) from (select id', f, 'order by ', col, ', id limit 1000) x');
  execute immediate concat('select group_concat(id) from (select id', f, 'order by ', col, ' desc, id desc limit 1000) x');
  execute immediate concat('select group_concat(id) from (select id', f, 'order by ', col, ', id limit 7) x');
  execute immediate concat('select md5(min(', col, ')), md5(max(', col, ')), count(distinct ', col, ')', f);
  execute immediate concat('select count(*), sum(m), sum(c) from (select max(id) m, count(*) c', f, 'group by ', col, ') x');
  while i < 17 do
    set i = i + 1;
    set @condition = replace(replace(replace(substring_index(substring_index(conditions, '|', i), '|', -1), 'X', col), 'L', a), 'H', b);
    execute immediate concat('select ', i, ', group_concat(id order by id), md5(min(', col, ')), md5(max(', col, '))', f, 'where ', @condition);
    execute immediate concat('select group_concat(id) from (select id', f, 'where ', @condition, ' order by ', col, ', id limit 9) x');
    execute immediate concat('select group_concat(id) from (select id', f, 'where ', @condition, ' order by ', col, ' desc, id desc limit 9) x');
    execute immediate concat('select group_concat(id order by id) from long_ where id in (select id', f, 'where ', @condition, ' for update)');
  end while;
end//
create procedure fill_all()
begin
  insert into long_ (id, k) select seq, concat(repeat('字', 758 + seq % 11), char(97 + seq * 7 % 26)) from seq_1_to_40;
  insert ignore into long_ (id, k) select seq + 100, repeat(char(97 + seq using utf8mb4), seq * 40) from seq_1_to_18;
  insert ignore into long_ (id, k) select seq + 200, concat(repeat('字', 759), char(96 + seq), repeat('語', seq % 8)) from seq_1_to_20;
  insert ignore into long_ (id, k) values (300, ''), (301, repeat('字', 760)), (302, repeat('字', 768)), (303, concat(repeat('字', 760), '   ')), (304, repeat('ﷺ', 768)), (305, concat(repeat('ﷺ', 767), 'a')), (306, concat(repeat('ﷺ', 100), 'b')), (307, concat(repeat('ﷺ', 84), 'c'));
end//
delimiter ;

create table long_ (id int primary key, k varchar(768) charset utf8mb4 collate utf8mb4_unicode_ci, key k (k));
call fill_all();
insert into long_ select id + 1000, k from long_ where id < 250;
insert into long_ (id, k) values (2000, null), (2001, null);
call read_all('k', 'k', '7', '1012');
check table long_;
update long_ set k = concat(left(k, 765), 'zz') where id between 1 and 12;
delete from long_ where k = (select k from (select k from long_ where id = 1015) x);
select count(*), sum(id) from long_ force index (k) where k > '';
check table long_;
analyze table long_;
alter table long_ drop key k, add key d (k desc, id);
call read_all('d', 'k', '13', '1009');
check table long_;

# Unique keys: the same duplicates, one by one and in bulk.
create or replace table long_ (id int primary key, k varchar(768) charset utf8mb4 collate utf8mb4_unicode_ci, unique k (k));
call fill_all();
call read_all('k', 'k', '7', '38');
insert into long_ select 5000, k from long_ where id = 7;
insert into long_ values (5001, concat(repeat('字', 768))), (5002, repeat('字', 767));
insert into long_ values (5001, concat(repeat('字', 757), 'unlike')), (5002, concat(repeat('字', 757), 'UNLIKE'));
insert into long_ select 6000 + seq, concat(repeat('語', 760), seq) from seq_1_to_30;
insert into long_ values (5003, concat(repeat('語', 760), 5)) on duplicate key update id = 5003;
replace into long_ values (5004, concat(repeat('語', 760), 6));
insert ignore into long_ values (5005, concat(repeat('語', 760), 7)), (5006, concat(repeat('語', 760), 77));
update long_ set k = concat(repeat('語', 760), 8) where id = 6009;
update long_ set k = concat(k, 'x') where id between 6020 and 6024;
select id, md5(k) from long_ where id > 5000 order by k;
delete from long_ where k between concat(repeat('語', 760), 2) and concat(repeat('語', 760), 4);
select id, md5(k) from long_ where id > 5000 order by k desc;
check table long_;
alter table long_ add unique k2 (k);
alter table long_ drop key k;
insert ignore into long_ select id + 10000, k from long_ where id between 6001 and 6005;
alter table long_ drop key k2;
insert into long_ select id + 10000, k from long_ where id between 6001 and 6025;
alter table long_ add unique k3 (k);
check table long_;

# The rows' own key.
create or replace table long_ (id int not null, k varchar(768) charset utf8mb4 collate utf8mb4_unicode_ci not null, t text, primary key (k), key id (id), key t (t(10), id));
call fill_all();
update long_ set t = repeat(id, 3000);
call read_all('primary', 'k', '7', '38');
select id, length(t) from long_ force index (id) where id between 5 and 30 order by id;
select id, md5(k), left(t, 5) from long_ force index (t) where t > '2' order by t, id;
select count(*), sum(id) from long_ use index () where k > repeat('字', 761);
insert into long_ select 5000, k, null from long_ where id = 7;
insert into long_ select id + 5000, concat(k, ' '), t from long_ where id = 304;
update long_ set k = concat(left(k, 766), 'y') where id = 3;
update long_ set k = concat(left(k, 766), 'y') where id in (14, 25);
update long_ set id = id + 1 where k >= repeat('字', 764) order by k limit 5;
delete from long_ where k > repeat('字', 765) limit 4;
select id, md5(k) from long_ order by k;
check table long_;
alter table long_ force;
check table long_;
select id, md5(k) from long_ order by k desc;
create table copy (primary key (k), key id (id)) select * from long_;
select a.id, b.id from long_ a join copy b on a.k = b.k order by a.id;
select count(*) from long_ a, copy b force index (primary) where a.k < b.k;
drop table copy;

# Several columns, the primary key's behind the index's, and bytes that are zero.
create or replace table long_ (id int, k varchar(500) charset utf8mb4 collate utf8mb4_unicode_ci, j varchar(260) charset utf8mb4 collate utf8mb4_unicode_ci, p varchar(700) charset utf8mb4 collate utf8mb4_unicode_ci, primary key (p, id), key kj (k, j), key jk (j desc, k), unique u (j, k));
insert into long_ select seq, repeat('字', 480 + seq % 5), repeat('語', 240 + seq % 16), concat(repeat('文', 690), seq % 6) from seq_1_to_80;
insert into long_ select seq, 'short', repeat('語', 240 + seq), repeat('文', 699) from seq_1_to_12;
call read_all('kj', 'k', '3', '62');
call read_all('jk', 'j', '3', '62');
call read_all('u', 'j', '3', '62');
call read_all('primary', 'p', '3', '62');
select id, length(k), length(j) from long_ force index (kj) where k = repeat('字', 482) and j > repeat('語', 250) order by j, p, id;
select id, length(k), length(j) from long_ force index (jk) where j = repeat('語', 251) order by k desc, p desc, id desc;
insert into long_ select 500, k, j, p from long_ where id = 11;
check table long_;
create or replace table long_ (id int, k blob, b varbinary(3000), key k (k(1536)), key b (b), primary key (id));
insert into long_ select seq, repeat(x'00', 1500 + seq), concat(repeat(x'00', 1510 + seq % 20), x'ff') from seq_1_to_60;
insert into long_ select seq + 100, concat(repeat(x'00', 1520), repeat(x'01', seq % 9)), repeat(x'0001', 760 + seq) from seq_1_to_30;
call read_all('k', 'k', '11', '104');
call read_all('b', 'b', '11', '104');
check table long_;

# Without a primary key, and in partitions.
create or replace table long_ (id int, k varchar(768) charset utf8mb4 collate utf8mb4_unicode_ci, key k (k), unique i (id));
call fill_all();
call read_all('k', 'k', '7', '38');
create or replace table long_ (id int, k varchar(700) charset utf8mb4 collate utf8mb4_unicode_ci, n int, key k (k, n), primary key (id)) partition by hash (id) partitions 3;
insert into long_ select seq, concat(repeat('ﷺ', 90 + seq % 3), seq % 30), seq from seq_1_to_90;
call read_all('k', 'k', '7', '38');
check table long_;
# A handler that is kept open goes on where it stood.
create or replace table long_ (id int primary key, k varchar(768) charset utf8mb4 collate utf8mb4_unicode_ci, key k (k, id));
call fill_all();
handler long_ open as h;
handler h read k first;
handler h read k next limit 12;
commit;
handler h read k next limit 12;
handler h read k prev limit 5;
handler h read k last;
handler h read k prev limit 8;
handler h read k next limit 3;
handler h close;
# Too long to be a key in either engine.
create table too_long (k varchar(769) charset utf8mb4, primary key (k));
create table too_long (k varchar(769) charset utf8mb4, key (k));
create table too_long (k varchar(768) charset utf8mb4, n int, primary key (k, n));
drop table long_;

# A unique key that is too long for an index is looked at behind the write at READ COMMITTED: behind all indexes.
CREATE TABLE hashed (a INT NOT NULL, b VARBINARY(3072) NOT NULL, UNIQUE KEY kab (b, a), UNIQUE KEY ka (a)) ENGINE=Inkstone;
INSERT INTO hashed VALUES (1, 'x');
INSERT INTO hashed VALUES (1, 'x');
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
INSERT INTO hashed VALUES (1, 'x');
INSERT IGNORE INTO hashed VALUES (1, 'x'), (2, 'x');
ALTER TABLE hashed DROP KEY ka;
INSERT INTO hashed VALUES (1, 'x');
SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;
SELECT a, b FROM hashed;
DROP TABLE hashed;
