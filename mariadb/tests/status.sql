-- Counters with InnoDB's names mean what InnoDB's mean: writes of data are not those of the log, and the
-- log's bytes are those of its records.
CREATE TABLE t (id INT PRIMARY KEY, v INT);
DELIMITER //
CREATE FUNCTION counter(name VARCHAR(64)) RETURNS BIGINT
RETURN (SELECT variable_value FROM information_schema.global_status
        WHERE variable_name = CONCAT(@@default_storage_engine, '_', name))//
CREATE PROCEDURE fill()
BEGIN
  DECLARE i INT DEFAULT 0;
  WHILE i < 400 DO
    INSERT INTO t VALUES (i, i);
    SET i = i + 1;
  END WHILE;
END//
DELIMITER ;
SET @writes = counter('data_writes'), @written = counter('data_written'), @log = counter('os_log_written');
SET @lsn = counter('lsn_current');
CALL fill();
SELECT counter('data_writes') - @writes < 100, counter('data_written') - @written < 400 * 4096;
SELECT (counter('os_log_written') - @log) / 400 BETWEEN 20 AND 2000, counter('lsn_current') - @lsn > 400 * 20;
DROP PROCEDURE fill;
DROP FUNCTION counter;
DROP TABLE t;
