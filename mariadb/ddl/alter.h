/* SPDX-License-Identifier: GPL-2.0-only */
/* What ALTER TABLE does to the trees of a table, as steps that a crash may interrupt anywhere. */
#ifndef INKSTONE_ALTER_H
#define INKSTONE_ALTER_H

#include "server/engine.h"
#include <string>
#include <vector>

/** Begins the names of trees that are being built; no index name can be that long. */
#define BUILDING "building, not yet an index of the table, and longer than any name of one: "

/** Changes of which rows know nothing. */
static const alter_table_operations NO_CHANGE_OF_ROWS=
    ALTER_RENAME | ALTER_CHANGE_COLUMN_DEFAULT | ALTER_OPTIONS | ALTER_CHANGE_INDEX_COMMENT |
    ALTER_DROP_CHECK_CONSTRAINT | ALTER_RENAME_COLUMN |
    ALTER_COLUMN_NAME | ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN |
    ALTER_VIRTUAL_COLUMN_ORDER | ALTER_STORED_COLUMN_ORDER | ALTER_COLUMN_OPTION | ALTER_CHANGE_COLUMN |
    ALTER_PARSER_ADD_COLUMN | ALTER_PARSER_DROP_COLUMN | ALTER_INDEX_IGNORABILITY |
    ALTER_COLUMN_UNVERSIONED | ALTER_INDEX_ORDER;

static const alter_table_operations INDEX_CHANGES=
    ALTER_ADD_INDEX | ALTER_DROP_INDEX | ALTER_RENAME_INDEX | ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX |
    ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX | ALTER_DROP_UNIQUE_INDEX;

/** What an ALTER is for InnoDB: longer VARCHARs are no change of a column's type, and a row format
    that is named makes the table anew. */
alter_table_operations wanted_of_innodb(const TABLE *table, const Alter_inplace_info *info);
/** Whether InnoDB does these in place, as far as their kinds tell. */
bool may_rebuild_in_innodb(alter_table_operations wanted);

/** Entries of a new index are sorted so many bytes at a time. */
static const size_t SORTED_BYTES_MAX= 32 << 20;

/** Trees to drop and to rename, in order. Each step is noted as done before the next one begins,
    and a step that was done already does nothing. */
class AlterPlan
{
public:
  void drop(const std::string &tree) { steps.push_back({tree, ""}); }
  void rename(const std::string &from, const std::string &to) { steps.push_back({from, to}); }
  bool empty() const { return steps.empty(); }
  size_t size() const { return steps.size(); }

  /** Does the first step and forgets it. */
  int do_first(ink_slice table, ink_error *error);

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
/** handlerton::check_version: 0 if an ALTER in place to that definition has happened. */
int check_version(handlerton *, const char *path, const LEX_CUSTRING *version, ulonglong create_id);

#endif
