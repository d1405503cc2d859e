create table t (id int primary key, a int);
xa start 'x1'; insert into t values (1,1); xa end 'x1'; xa prepare 'x1'; xa recover; xa commit 'x1'; select * from t;
xa start 'x2'; insert into t values (2,2); xa end 'x2'; xa prepare 'x2'; xa rollback 'x2'; select * from t;
xa start 'x3'; insert into t values (3,3); xa end 'x3'; xa commit 'x3' one phase; select * from t;
create table i (id int primary key) engine=innodb; begin; insert into i values (1); insert into t values (10,10); commit; begin; insert into i values (2); insert into t values (11,11); rollback; select * from i, t;
set transaction isolation level serializable; begin; select * from t; commit; set transaction isolation level read uncommitted; begin; select * from t; commit; start transaction with consistent snapshot; select * from t; commit; start transaction read only; select * from t; insert into t values (50,50); commit;
flush logs; flush engine logs; show binlog events limit 0;
create table m (id int primary key) engine=myisam; begin; insert into t values (60,1); insert into m values (1); rollback; select * from t; select * from m;
begin; insert into t values (70,1); create table dd (a int); rollback; select * from t where id=70;
set autocommit=0; insert into t values (80,1); rollback; insert into t values (81,1); commit; set autocommit=1; select * from t;
delimiter //
create procedure p() begin declare exit handler for sqlexception begin rollback; select 'rolled back'; end; start transaction; insert into t values (90,1); insert into t values (1,1); commit; end//
create function f(x int) returns int begin insert into t values (x,x); return x; end//
create trigger tr after insert on t for each row begin if new.a=666 then signal sqlstate '45000' set message_text='no'; end if; end//
delimiter ;
call p(); select * from t; select f(100); select f(1); insert into t values (110,1),(111,666),(112,1); insert into t values (120,1),(1,1); select f(id+200) from t where id<4; select * from t;
lock tables t write; insert into t values (300,1); select count(*) from t; unlock tables; lock tables t read; select count(*) from t; insert into t values (301,1); unlock tables;
begin; savepoint a; insert into t values (400,1); savepoint b; insert into t values (401,1); savepoint a; insert into t values (402,1); rollback to b; select id from t where id>=400; rollback to a; release savepoint b; commit; select id from t where id>=400;
