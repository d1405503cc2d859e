/* SPDX-License-Identifier: GPL-2.0-only */
/* What ALTER TABLE does to the trees of a table, as steps that a crash may interrupt anywhere. */
#ifndef INKSTONE_ALTER_PLAN_H
#define INKSTONE_ALTER_PLAN_H

#include "server/engine.h"
#include <string>
#include <vector>

/** Begins the names of trees that are being built; no index name can be that long. */
#define BUILDING "building, not yet an index of the table, and longer than any name of one: "

/** Begin what is no tree, for the same reason. */
#define FOREIGN_KEY_DROPPED "a foreign key that is dropped, and no index that has this name, which none has: "
#define COLUMN_RENAMED "a column of foreign keys that is renamed, and no index that has this name: "

/** Trees to drop and to rename, foreign keys to drop, and columns of theirs to rename, in order.
    Each step is noted as done before the next one begins, and a step that was done already does
    nothing. */
class AlterPlan
{
public:
  void drop(const std::string &tree) { steps.push_back({tree, ""}); }
  void rename(const std::string &from, const std::string &to) { steps.push_back({from, to}); }
  void drop_foreign_key(const std::string &key) { steps.push_back({FOREIGN_KEY_DROPPED + key, ""}); }
  void rename_column(const std::string &from, const std::string &to) { steps.push_back({COLUMN_RENAMED + from, to}); }
  bool empty() const { return steps.empty(); }
  size_t size() const { return steps.size(); }

  /** Does the first step and forgets it. */
  int do_first(THD *thd, const std::string &table);

  std::vector<uchar> encode() const;
  static AlterPlan decode(const std::vector<uchar> &bytes);

private:
  struct Step
  {
    std::string tree, new_name;
  };
  std::vector<Step> steps;
};

/** The id of the definition that the last ALTER in place gave the table. Not 0: it cannot be
    read. */
int read_version(ink_slice table, std::vector<uchar> *version);

#endif
