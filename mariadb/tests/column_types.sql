# Every column type, its limits, and NULL; in rows, in keys, in long values.
set names utf8mb4; set session time_zone='+00:00', timestamp=1700000000;

create table n (id int auto_increment primary key, t tinyint, tu tinyint unsigned, s smallint, su smallint unsigned, m mediumint, mu mediumint unsigned, i int, iu int unsigned, b bigint, bu bigint unsigned, bl bool, key(t),key(tu),key(s),key(su),key(m),key(mu),key(i),key(iu),key(b),key(bu));
insert into n (t,tu,s,su,m,mu,i,iu,b,bu,bl) values (-128,0,-32768,0,-8388608,0,-2147483648,0,-9223372036854775808,0,false),(127,255,32767,65535,8388607,16777215,2147483647,4294967295,9223372036854775807,18446744073709551615,true),(0,1,0,1,0,1,0,1,0,1,0),(-1,128,-1,32768,-1,8388608,-1,2147483648,-1,9223372036854775808,1),(null,null,null,null,null,null,null,null,null,null,null);
select * from n order by id;
select t from n order by t; select tu from n order by tu; select s from n order by s; select su from n order by su; select m from n order by m; select mu from n order by mu; select i from n order by i; select iu from n order by iu; select b from n order by b; select bu from n order by bu;
select t,id from n where t<0 order by t; select bu from n where bu>5 order by bu desc; select m from n where m between -5 and 5 order by m; select id from n where i is null; select id from n where i=-1; select id from n where mu=8388608;
select id,bl from n force index(t) where t>=-128 order by t; select id,bl from n force index(bu) where bu>0 order by bu desc; select id,bl from n force index(b) order by b;
update n set b=-1-b where id in (1,2,4); select id,b,bl from n force index(b) order by b;
insert into n (id,t) values (6,300); insert ignore into n (id,t,tu) values (6,300,-1); select id,t,tu from n where id=6;

create table d (id int primary key, f float, d double, de decimal(10,3), de2 decimal(65,30), de3 decimal(30,10), de4 decimal(65), b1 bit(1), b64 bit(64), key(f),key(d),key(de),key(de2),key(de3),key(de4),key(b64));
insert into d values (1,-1.5,-1e300,-1234567.891,-1.000000000000000000000000000001,-99999999999999999999.9999999999,-1e64,b'0',b'0'),
(2,0,0,0,0,0,0,b'1',1),
(3,3.4e38,1e-300,9999999.999,99999999999999999999999999999999999.999999999999999999999999999999,99999999999999999999.9999999999,1e64,b'1',~0),
(4,null,null,null,null,null,null,null,null),
(5,-0.0,-0.0,-0.001,0.1,0.0000000001,-1,b'0',1<<63),
(6,-3.4e38,-1.7e308,1,1,1,1,b'1',2),(7,1e-38,1.7e308,-1,-1,-1,2,b'0',3);
select id,f,d,de,de2,de3,de4,b1+0,b64+0 from d order by id;
select f from d order by f,id; select d from d order by d,id; select de from d order by de; select de2 from d order by de2; select de3 from d order by de3; select de4 from d order by de4; select b64+0 from d order by b64;
select id from d where d=0 order by id; select id from d where f=0 order by id; select id from d where de<0 order by de;
select id,b1+0 from d force index(f) where f<0 order by f; select id,b1+0 from d force index(d) where d is null or d<=0 order by d,id; select id,b1+0 from d force index(de3) where de3 between -1e20 and 0.0000000001 order by de3; select id,b1+0 from d force index(de4) order by de4; select id,b1+0 from d force index(b64) where b64>=1 order by b64;
update d set de3=-de3, d=-d where id in (1,3,5); select id,d,de3 from d force index(de3) where de3<0 order by de3;

create table times (id int primary key, y year, da date, ti time, ti6 time(6), dt datetime, dt3 datetime(3), dt6 datetime(6), ts timestamp null, ts3 timestamp(3) null, ts6 timestamp(6) null, changed timestamp(6) default current_timestamp(6) on update current_timestamp(6), key(y),key(da),key(ti),key(ti6),key(dt),key(dt3),key(dt6),key(ts),key(ts3),key(ts6));
insert into times (id,y,da,ti,ti6,dt,dt3,dt6,ts,ts3,ts6) values (1,1901,'1000-01-01','-838:59:59','-838:59:59.999999','1000-01-01 00:00:00','1000-01-01 00:00:00.123','1000-01-01 00:00:00.000001','1970-01-01 00:00:01','1970-01-01 00:00:01.001','1970-01-02 00:00:01.000001'),
(2,2000,'2000-02-29','00:00:00','00:00:00.000001','2000-02-29 12:00:00','2000-02-29 12:00:00.999','2000-02-29 12:00:00.5','2001-09-09 01:46:40','2000-02-29 12:00:00.5','2001-09-09 01:46:40.5'),
(3,2155,'9999-12-31','838:59:59','838:59:59.999999','9999-12-31 23:59:59','9999-12-31 23:59:59.999','9999-12-31 23:59:59.999999','2038-01-19 03:14:07','2038-01-19 03:14:07.999','2038-01-19 03:14:07.999999'),
(4,null,null,null,null,null,null,null,null,null,null),
(5,1999,'0000-00-00','-00:00:01','-00:00:00.5','0000-00-00','1999-12-31 23:59:59.5','1999-12-31 23:59:59','1999-12-31 23:59:59','1999-12-31 23:59:59','1999-12-31 23:59:59.999'),
(6,2001,'2001-01-01','00:00:01','-00:00:00.000001','2001-01-01','2001-01-01','2001-01-01','2001-01-01','2001-01-01','2001-01-01');
select * from times order by id;
select y from times order by y; select da from times order by da; select ti from times order by ti; select ti6 from times order by ti6; select dt from times order by dt; select dt3 from times order by dt3; select dt6 from times order by dt6; select ts from times order by ts; select ts3 from times order by ts3; select ts6 from times order by ts6;
select id,ti6 from times where ti6<'00:00:00' order by ti6; select id from times where ts6>'2000-01-01' order by ts6;
select times.* from times force index(dt3) where dt3>'1999-01-01' order by dt3; select id,dt6 from times force index(dt6) where dt6>'1999-01-01' order by dt6 desc; select id,ts3 from times force index(ts3) where ts3>='2000-02-29' order by ts3; select id,ti6 from times force index(ti6) where ti6<0 order by ti6; select id,y from times force index(y) where y>1950 order by y;

create table s (id int primary key, c char(10), vc varchar(300), cb char(10) collate utf8mb4_bin, bi binary(5), vb varbinary(300), e enum('z','y','x'), st set('a','b','c'), bt bit(13), key(c),key(vc),key(cb),key(bi),key(vb),key(e),key(st),key(bt), key(vc,c,vb)) default charset utf8mb4;
insert into s values (1,'abc','abc','abc','abc','abc','z','a',b'1'),(2,'ABC','ABC ','ABC','ABC','ABC','y','a,b',b'1000000000000'),(3,'','','','','','x','',b'0'),(4,null,null,null,null,null,null,null,null),(5,'ab','ab\tx','ab','ab\0','ab\0','x','c',b'111'),(6,'ab c','ab c','ab c',x'00010203',x'0001000000','z','a,b,c',b'1111111111111'),(7,'äöü','äöü€😀','äöü',x'ff',x'ffff','y','b',b'10'),(8,'abcd','abcd','abcd','abcd',x'000100','x','b,c',b'101'),(9,'abc  ','abc  ','abc  ','a\0b','a\0b\0','z','a,c',b'11'),(10,'zz','zz','zz','zzzzz',x'ff','y','a',b'100');
select id,c,vc,cb,hex(bi),hex(vb),e,e+0,st,st+0,bt+0 from s order by id;
select c from s order by c,id; select vc,id from s order by vc,id; select cb from s order by cb; select hex(bi) from s order by bi; select hex(vb) from s order by vb; select e from s order by e,id; select st from s order by st,id; select hex(bt) from s order by bt,id;
select id from s where vc='abc' order by id; select id from s where vc='ABC  ' order by id; select id from s where vc like 'ab%' order by id; select id from s where c like 'AB%' order by id; select id from s where cb='abc' order by id; select id from s where vb=x'0001000000'; select id from s where vb > x'0001' order by vb; select id from s where bt=b'1'; select id from s where e='x' order by id; select vc,c,hex(vb) from s force index(vc_2) order by vc,c,vb,id; select id from s where vc > 'ab' order by id; select id from s where vc < 'abc' order by id; select vc from s where vc < 'ab' order by vc,id;
select id, vc from s where vc between 'ab' and 'abc' order by id;
select id,cb from s force index(c) where c='abc' order by id; select id,cb from s force index(vc) where vc='abc' order by id; select id,cb from s force index(vb) where vb>='a' order by vb; select id,cb from s force index(e) where e in ('x','z') order by e,id; select id,cb from s force index(st) order by st,id;

create table bl (id int primary key, tb tinyblob, b blob, mb mediumblob, lb longblob, tt tinytext, t text, mt mediumtext, lt longtext, j json, key(tb(5)), key(b(10)), key(lb(10),mb(10)), key(tt(5)), key(lt(10), t(3)));
insert into bl values (1,'a','b','c','d','e','f','g','h','{"a":1}'),(2,repeat('x',255),repeat('y',65535),repeat('z',100000),repeat('w',1000000),repeat('q',255),repeat('r',65535),repeat('s',100000),repeat('t',1000000),'[1,2,3]'),(3,null,null,null,null,null,null,null,null,null),(4,'','','','','','','','','null');
select id,length(tb),length(b),length(mb),length(lb),length(tt),length(t),length(mt),length(lt),j from bl order by id;
select id from bl where b='b'; select id from bl where lb=repeat('w',1000000); select id from bl where lt like 'tttt%'; select id from bl where tt='E'; select id from bl where lt is null;
update bl set lb=concat(lb,'!') where id=2; select id, length(lb), right(lb,3), md5(lb), md5(mt) from bl order by id;
delete from bl where id=2; select id from bl;
insert into bl values (9,'a','b','c','d','e','f','g','h','{"a":');

create table u8 (id int primary key, tt tinytext, t text, mt mediumtext, lb longblob, j json, u uuid, i6 inet6, key(t(20)), key(lb(10),mt(10)), key(u), key(i6)) default charset utf8mb4;
insert into u8 values (1,'','','','','{}','00000000-0000-0000-0000-000000000000','::'),(2,'tiny',repeat('x',3000),repeat('m',70000),repeat('l',200000),'{"a": [1, 2, null]}','123e4567-e89b-12d3-a456-426655440000','2001:db8::ff00:42:8329'),(3,null,null,null,null,null,null,null),(4,'Ä','größe','日本語',0x00ff00,'[]','ffffffff-ffff-ffff-ffff-ffffffffffff','::ffff:192.0.2.1'),(5,'','','','','1','00000000-0000-0000-0000-000000000001','::1');
select id,tt,length(t),md5(t),length(mt),md5(mt),length(lb),md5(lb),j,u,i6 from u8 order by id;
select id from u8 force index(t) where t like 'xxxx%';
select u,i6 from u8 order by u; select u,i6 from u8 order by i6; select id from u8 where u='123e4567-e89b-12d3-a456-426655440000'; select i6 from u8 where i6>'::' order by i6; select u from u8 where u>'00000000-0000-0000-0000-000000000001' order by u;
select id from u8 force index(u) where u>'00000000-0000-0000-0000-000000000000' order by u; select id from u8 force index(i6) order by i6,id;
update u8 set lb=concat(lb,'more'), mt=null where id=2; select id,length(lb),right(lb,6),mt from u8 where id=2;
insert into u8 (id,j) values (6,'{broken');
delete from u8 where id=2;

create table pk1 (a varchar(20), b decimal(5,2), c datetime(2), d varbinary(10), primary key(a,b,c,d), key(c), key(b,a)) default charset latin1;
insert into pk1 values ('one',1.5,'2020-01-01',x'00'),('one ',1.5,'2020-01-01',x'0000'),('ONE',-1.5,'2019-01-01',''),('two',0,'0000-00-00','x');
insert into pk1 values ('One',1.50,'2020-01-01',x'00');
select a,b,c,hex(d) from pk1; select c from pk1 order by c; select b,a from pk1 force index(b) order by b,a; select hex(d),a from pk1 force index(c) where c='2020-01-01' order by d; update pk1 set d='zz' where c='2019-01-01'; select a,hex(d) from pk1 where a='one' order by b; update pk1 set a=upper(a); select * from pk1 order by b,a,d; delete from pk1 where b=0; select count(*) from pk1;
create table pnt (id int primary key, p point, g geometry not null); insert into pnt values (1,point(1,2),linestring(point(0,0),point(1,1))); select id,st_astext(p),st_astext(g) from pnt;
create table cmp (id int primary key, a varchar(1000) compressed, b text compressed); insert into cmp values (1,repeat('a',900),repeat('b',9000)); select id,length(a),length(b),md5(b) from cmp; update cmp set a='x'; select * from cmp where a='x' and id=1 and length(b)>100 limit 0;
select count(*) from cmp;

check table n,d,times,s,bl,u8,pk1,pnt,cmp extended; checksum table n,d,s,u8 extended;
show create table u8; show index from times;
select group_concat(id order by id) from (select id from n union all select id from times union all select id from u8) x;
drop table n,d,times,s,bl,u8,pk1,pnt,cmp;
