-- Rows of an index's entries: 20,000 rows by a secondary index, scattered over 400,000 rows of 200
-- bytes, which do not fit in the buffer pool.
-- server: --innodb-buffer-pool-size=16m --inkstone-buffer-pool-size=16m --innodb-flush-method=O_DIRECT --inkstone-flush-method=O_DIRECT
CREATE TABLE looked_up (id INT PRIMARY KEY, k INT NOT NULL, pad CHAR(200) CHARACTER SET latin1 NOT NULL, KEY (k)) ENGINE=Inkstone;
INSERT INTO looked_up SELECT seq, (seq * 7919) % 400000, REPEAT('x', 200) FROM seq_1_to_400000;
-- measure rows by index 20000
SELECT SUM(LENGTH(pad)) FROM looked_up FORCE INDEX (k) WHERE k BETWEEN 100000 AND 119999;
-- measure again, other rows 20000
SELECT SUM(LENGTH(pad)) FROM looked_up FORCE INDEX (k) WHERE k BETWEEN 300000 AND 319999;
-- end
DROP TABLE looked_up;
