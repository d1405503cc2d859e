-- Log bytes of a row (MDEV-21724).
CREATE TABLE single (a BIGINT) ENGINE=Inkstone;
INSERT INTO single VALUES (0);
DELIMITER //
CREATE PROCEDURE insert_single(n INT)
BEGIN
  DECLARE i INT DEFAULT 0;
  WHILE i < n DO
    INSERT INTO single VALUES (i);
    SET i = i + 1;
  END WHILE;
END//
DELIMITER ;
-- measure create..select 2097152
CREATE TABLE t2 ENGINE=Inkstone SELECT * FROM seq_1_to_2097152;
-- end
CREATE TABLE t3 (a INT PRIMARY KEY) ENGINE=Inkstone;
-- measure insert..select, key 2097152
INSERT INTO t3 SELECT seq FROM seq_1_to_2097152;
-- measure autocommitted insert 1000
CALL insert_single(1000);
-- end
DROP TABLE t2, t3, single;
