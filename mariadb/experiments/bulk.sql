-- Filling empty tables: 1.2 million rows into a table with a secondary index, and ALTER TABLE .. ENGINE
-- of 1.2 million rows of sysbench.
-- server: --innodb-log-file-size=64m --inkstone-log-file-size=64m
-- server: --innodb-buffer-pool-size=256m --inkstone-buffer-pool-size=256m
CREATE TABLE filled (id INT PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, KEY (k)) ENGINE=Inkstone;
CREATE TABLE source (id INT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL DEFAULT 0,
  c CHAR(120) NOT NULL DEFAULT '', pad CHAR(60) NOT NULL DEFAULT '', KEY (k)) ENGINE=MyISAM;
INSERT INTO source SELECT seq, (seq * 2654435761) % 1200000,
  REPEAT(MD5(seq), 3), MD5(seq + 1) FROM seq_1_to_1200000;
-- measure insert..select 1200000
INSERT INTO filled SELECT seq, (seq * 2654435761) % 1200000, MD5(seq) FROM seq_1_to_1200000;
-- measure rollback of it 1200000
TRUNCATE TABLE filled;
-- measure alter..engine 1200000
ALTER TABLE source ENGINE=Inkstone;
-- end
DROP TABLE filled, source;
