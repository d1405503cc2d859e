# A constraint that is added holds in every row, whatever the ALTER does besides.
create table t (a int primary key, b int, c int); insert into t values (1,1,null),(2,-5,2);
alter table t add constraint k check (b>0); show create table t; alter table t add check (b < 3); show create table t;
alter table t add constraint n check (b>-6), add key (b); alter table t add constraint o check (b>0), drop key b; alter table t add unique (b), add constraint p check (b>-5); show create table t;
alter table t add constraint q check (c is not null), alter b set default 1; alter table t add constraint m check (b>0), algorithm=instant; alter table t add constraint m check (b>-6), algorithm=inplace;
alter table t add column f int default 5, add constraint ff check (f<3); select * from t order by a;
alter table t add constraint if not exists k check (b>-10); alter table t drop constraint k; alter table t drop constraint if exists k;
set check_constraint_checks=0; alter table t add constraint r check (b>0); set check_constraint_checks=1; show create table t; insert into t values (3,-3,3); update t set c=9; alter table t drop constraint r, algorithm=instant;
alter table t add constraint s check (b>-6), rename to u; insert into u values (3,-7,3); select * from u order by a;
create table p (a int primary key, b int) partition by hash(a) partitions 2; insert into p values (1,-1),(2,2); alter table p add check (b>0); alter table p add check (b>-2); show create table p;
