# How many values an index has: near the truth, and near what InnoDB says, which shows up to twice as many.
CREATE TABLE data (id INT PRIMARY KEY, three INT, hundred INT, many INT, skew INT, u INT, t VARCHAR(50),
  KEY three (three), KEY hundred (hundred), KEY many (many), KEY skew (skew), UNIQUE u (u), KEY three_many (three, many), KEY t_hundred (t, hundred), KEY u_three (u, three)) ENGINE=Inkstone;
INSERT INTO data SELECT seq, seq MOD 3, (seq * 7919) MOD 100, (seq * 7919) MOD 10007, IF(seq MOD 10, 5, seq), (seq * 7) MOD 200003, CONCAT('town ', seq MOD 300) FROM seq_1_to_200000;
ANALYZE TABLE data;
CREATE TABLE truth (i VARCHAR(20), part INT, n INT, PRIMARY KEY (i, part)) ENGINE=Inkstone;
INSERT INTO truth VALUES ('PRIMARY', 1, 200000), ('three', 1, 3), ('hundred', 1, 100), ('many', 1, 10007), ('skew', 1, 20001), ('u', 1, 200000), ('three_many', 1, 3), ('three_many', 2, 30021),
  ('t_hundred', 1, 300), ('t_hundred', 2, 300), ('u_three', 1, 200000), ('u_three', 2, 200000);
SELECT index_name, seq_in_index, cardinality BETWEEN n * 0.8 AND n * 3 AS near FROM information_schema.statistics JOIN truth ON index_name = i AND seq_in_index = part
  WHERE table_schema = DATABASE() AND table_name = 'data' ORDER BY 1, 2;
# As many leaves as there are: the truth, also of runs that grow.
CREATE TABLE runs (id INT PRIMARY KEY, r INT, KEY r (r)) ENGINE=Inkstone STATS_SAMPLE_PAGES=5000;
INSERT INTO runs SELECT seq, FLOOR(SQRT(seq)) FROM seq_1_to_100000;
ANALYZE TABLE runs;
SELECT cardinality BETWEEN 2 * 316 * 0.95 AND 2 * 316 * 1.05 AS near FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'runs' AND index_name = 'r';
# What ANALYZE has found is kept over restarts, and is not found anew where the table says so; but after each opening where nothing is kept.
CREATE TABLE kept (id INT PRIMARY KEY, v INT, w INT, KEY v (v), KEY w (w)) ENGINE=Inkstone STATS_PERSISTENT=1 STATS_AUTO_RECALC=0;
CREATE TABLE fleeting (id INT PRIMARY KEY, v INT, w INT, KEY v (v), KEY w (w)) ENGINE=Inkstone STATS_PERSISTENT=0;
INSERT INTO kept SELECT seq, seq MOD 10, seq MOD 5 FROM seq_1_to_1000;
INSERT INTO fleeting SELECT seq, seq MOD 10, seq MOD 5 FROM seq_1_to_1000;
ANALYZE TABLE kept, fleeting;
INSERT INTO kept SELECT seq, seq, seq FROM seq_1001_to_50000;
INSERT INTO fleeting SELECT seq, seq, seq FROM seq_1001_to_50000;
SELECT index_name, cardinality < 100 AS old FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'kept' ORDER BY 1;
# restart
SELECT table_name, index_name, cardinality < 100 AS old FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name IN ('kept', 'fleeting') AND index_name <> 'PRIMARY' ORDER BY 1, 2;
# An index of the same name on other columns is another one.
ALTER TABLE kept DROP INDEX v, ADD INDEX v (id, v);
SELECT index_name, seq_in_index, cardinality < 100 AS old FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'kept' AND index_name = 'v' ORDER BY 1, 2;
ANALYZE TABLE kept;
SELECT index_name, seq_in_index, cardinality < 100 AS old FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'kept' ORDER BY 1, 2;
SHOW CREATE TABLE kept;
# Long values are data, too.
CREATE TABLE texts (id INT PRIMARY KEY, v LONGTEXT, KEY (v(10))) ENGINE=Inkstone;
INSERT INTO texts SELECT seq, REPEAT('x', 100000) FROM seq_1_to_40;
ANALYZE TABLE texts;
SELECT data_length BETWEEN 4000000 AND 8000000 AS all_of_it, index_length < 100000 AS short_index FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'texts';
DROP TABLE data, truth, runs, kept, fleeting, texts;
