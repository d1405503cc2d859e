-- A user's first act: ALTER TABLE .. ENGINE of 10 million rows of sysbench, about two gigabytes, with a
-- buffer pool of an eighth of them and a log of 64 MiB.
-- server: --innodb-log-file-size=64m --inkstone-log-file-size=64m
-- server: --innodb-buffer-pool-size=256m --inkstone-buffer-pool-size=256m
CREATE TABLE source (id INT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL DEFAULT 0,
  c CHAR(120) NOT NULL DEFAULT '', pad CHAR(60) NOT NULL DEFAULT '', KEY (k)) ENGINE=MyISAM;
INSERT INTO source SELECT seq, (seq * 2654435761) % 10000000,
  REPEAT(MD5(seq), 3), MD5(seq + 1) FROM seq_1_to_10000000;
-- measure alter..engine 10000000
ALTER TABLE source ENGINE=Inkstone;
-- end
DROP TABLE source;
