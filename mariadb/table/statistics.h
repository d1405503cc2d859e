/* SPDX-License-Identifier: GPL-2.0-only */
/* How many different values the indexes of a table have, and for how long that is used.

   Table options, as in InnoDB: STATS_SAMPLE_PAGES leaves are looked at for each part of an index
   (default 20; 8 with STATS_PERSISTENT=0). ANALYZE keeps what it has found in the table's facts,
   and later opens of the table begin with that; with STATS_PERSISTENT=0 each opening counts anew.
   When a tenth of the rows has changed the values are counted again, for the running server; not
   with STATS_AUTO_RECALC=0. */
#ifndef INKSTONE_STATISTICS_H
#define INKSTONE_STATISTICS_H

#include "server/engine.h"
#include <string>
#include <vector>

/** What the options of a table say. */
struct StatisticsOptions
{
  explicit StatisticsOptions(const TABLE_SHARE *definition);
  bool persistent, recalculated;
  size_t leaves;
};

/** The values of the indexes of a table. */
class IndexValues
{
public:
  IndexValues() : rows(0), is_read(false) {}
  void clear();
  /** By number of an index: different values of its first 1, 2, ... parts. Empty: not counted
      yet. */
  std::vector<std::vector<uint64>> of_index;
  /** Rows that the table had then. */
  uint64 rows;
  /** They are of an earlier opening: the table may have changed since. */
  bool is_read;

  std::vector<uchar> encode(const TABLE_SHARE *definition) const;
  /** Takes those of the indexes that are as they were. */
  void decode(const std::vector<uchar> &bytes, const TABLE_SHARE *definition);
};

#endif
