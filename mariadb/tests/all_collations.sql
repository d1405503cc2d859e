set names utf8mb4;
create table words (id int primary key auto_increment, w varchar(30)) charset utf8mb4;
insert into words(w) values (''),(' '),('a'),('a '),('a  b'),('a b'),('A B'),('a\tb'),('ab'),('aB'),('Ab'),('abc'),('á'),('Á'),('ä'),('ae'),('æ'),('z'),('Z'),('ß'),('ss'),('ñ'),('n'),('o'),('ö'),('ø'),('ł'),('l'),('я'),('Я'),('日本'),('日'),('本'),('ch'),('cz'),('c'),('h'),('-'),('_'),('a-b'),('a_b'),('0'),('10'),('9'),('a\0b'),('a\0'),('\0'),('a\n'),('é'),('e'),('f'),('ÿ'),('Å'),('aa'),('i'),('ı'),('I'),(' a'),('  a');
delimiter //
for c in (select character_set_name cs, full_collation_name n from information_schema.collation_character_set_applicability where full_collation_name not in ('utf8mb3_general_ci') order by id) do
  execute immediate concat('create or replace table c (w varchar(30) charset ', c.cs, ' collate ', c.n, ', id int, key(w), key(w(2),id))');
  insert ignore into c select w,id from words;
  select c.n, count(*), sum(a.id*b.id) from c a force index(w) straight_join c b force index(w) on a.w=b.w;
  select count(*), sum(id) from c force index(w) where w>='a' and w<'b';
  select count(*), sum(id) from c force index(w) where w<='a';
  select count(*), sum(id) from c force index(w) where w like 'a%';
  select count(*), sum(id) from c force index(w_2) where w='a ' and id>0;
end for//
delimiter ;
