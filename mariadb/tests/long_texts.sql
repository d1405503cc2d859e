# Texts that differ late: keys of multi-byte character sets were cut to a quarter of their weights.
set names utf8mb4;
create table u (id int primary key, m varchar(100) unique) charset utf8mb4;
insert into u values (2,'constraintsuniqueconstraintproduct'),(5,'constraintsuniqueconstraintinclude');
select id from u force index(m) order by m;
select min(m), max(m) from u;
drop table u;
delimiter //
for c in (select 'utf8mb4' cs, 'utf8mb4_general_ci' n union select 'utf8mb4','utf8mb4_bin' union select 'utf8mb3','utf8mb3_general_ci' union select 'utf8mb4','utf8mb4_uca1400_as_cs' union select 'utf16','utf16_general_ci' union select 'utf32','utf32_unicode_ci' union select 'ucs2','ucs2_bin' union select 'big5','big5_chinese_ci' union select 'utf8mb4','utf8mb4_unicode_nopad_ci') do
  select c.n;
  execute immediate concat('create or replace table c (m varchar(200) charset ', c.cs, ' collate ', c.n, ' not null, id int, t text charset ', c.cs, ' collate ', c.n, ', unique(m), key(m desc, id), key(t(150)))');
  insert into c select concat(repeat('constraint', seq % 12), char(97 + seq % 26), seq), seq, repeat('x', seq % 160) from seq_1_to_300;
  insert ignore into c select concat(repeat('constraint', seq % 12), char(97 + seq % 26), seq), seq, 'y' from seq_290_to_310;
  select count(*), sum(id) from c force index(m);
  select group_concat(id) from (select id from c force index(m) order by m limit 300) x;
  select group_concat(id) from (select id from c force index(m_2) order by m desc, id limit 300) x;
  select count(*), sum(id) from c force index(m) where m > concat(repeat('constraint', 6), 'b') and m < concat(repeat('constraint', 9), 'c');
  select count(*), sum(id) from c force index(m_2) where m like concat(repeat('constraint', 7), 'd%');
  select max(id), min(id), count(*) from (select m, max(id) id from c force index(m) group by m) x;
  select length(t), count(*) from c force index(t) where t > repeat('x', 140) group by t order by t;
end for//
delimiter ;
