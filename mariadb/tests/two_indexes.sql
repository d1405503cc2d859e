# Reads by two indexes: entries that are merged, and rows of one that the other filters. Of a column of which a key has but the beginning an entry has nothing, and a virtual one is computed of the row; the server compares both with the end of a range.
CREATE TABLE merged (c1 VARCHAR(50) NOT NULL, c2 TINYTEXT AS (c1) VIRTUAL, KEY k3 (c1(10)), KEY k4 (c2(3) DESC)) ENGINE=Inkstone;
INSERT INTO merged (c1) VALUES (''), ('uniq'), ('a'), ('ab'), ('zz');
SELECT c1 FROM merged FORCE INDEX (k3, k4) WHERE c2 LIKE 'a%' OR c1 = '' ORDER BY c1;
SELECT c1 FROM merged FORCE INDEX (k3, k4) WHERE c2 < 'b' OR c1 > 'x' ORDER BY c1;
DROP TABLE merged;
CREATE TABLE filtered (c1 VARCHAR(50) NOT NULL, c2 TINYTEXT, c3 INT, KEY k3 (c1(2) DESC), KEY k4 (c2(3)), KEY k5 (c3 DESC)) ENGINE=Inkstone;
INSERT INTO filtered VALUES ('', '', 1), ('a', 'a', 2), ('ab', 'ab', 3), ('abc', 'abc', 4), ('b', 'b', 5), ('zz', 'zz', 6);
SELECT c1 FROM filtered FORCE INDEX (k3, k4) WHERE c2 LIKE 'a%' AND c1 LIKE 'a%' ORDER BY c1;
SELECT c1 FROM filtered FORCE INDEX (k5, k4) WHERE c2 LIKE 'a%' AND c3 BETWEEN 1 AND 3 ORDER BY c1;
SELECT c1 FROM filtered FORCE INDEX (k3, k5) WHERE c3 > 2 AND c1 LIKE 'a%' ORDER BY c1;
DROP TABLE filtered;
