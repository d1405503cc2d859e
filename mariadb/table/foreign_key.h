/* SPDX-License-Identifier: GPL-2.0-only */
/* Foreign keys as the engine's catalog has them, and in words. */
#ifndef INKSTONE_FOREIGN_KEY_H
#define INKSTONE_FOREIGN_KEY_H

#include "server/engine.h"

/** The server's names of a table that the engine knows as "db/t". */
struct SqlName
{
  explicit SqlName(const std::string &table);
  std::string database, table;
};
/** The engine's name of a table. */
std::string engine_name(const char *database, const char *table);

struct ForeignKey
{
  bool changes_children(bool is_update) const
  {
    const uint32_t action= is_update ? on_update : on_delete;
    return action == INK_CASCADE || action == INK_SET_NULL;
  }
  /** Of this table's columns, by their names. */
  std::vector<std::string> columns, parent_columns;
  /** Without the name of its database. */
  std::string name;
  /** The engine's names of both tables. */
  std::string child, parent;
  uint32_t on_delete, on_update;
};

typedef std::vector<ForeignKey> ForeignKeys;

/** foreign_key_checks of a session. */
inline bool checks_foreign_keys(THD *thd) { return !thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS); }

/* These are in the order of their names, as InnoDB has them everywhere. */

/** Those of a table; with an empty name those of all tables. */
int foreign_keys_of(THD *thd, const std::string &table, ForeignKeys *found);
/** Those that refer to a table. */
int foreign_keys_to(THD *thd, const std::string &parent, ForeignKeys *found);
/** Gives tables other foreign keys, all or none. */
int set_foreign_keys(THD *thd, const std::vector<std::pair<std::string, ForeignKeys>> &tables);

inline bool same_column(const char *one, const char *other)
{
  return !my_strcasecmp(system_charset_info, one, other);
}

/** "CONSTRAINT `k` FOREIGN KEY (`a`) REFERENCES `p` (`id`) ON DELETE CASCADE". */
std::string describe(THD *thd, const ForeignKey &key);
/** That, behind the name of its table: what errors 1451 and 1452 show. */
std::string describe_with_table(THD *thd, const ForeignKey &key);

/** What the latest error of a foreign key was, for SHOW ENGINE INKSTONE STATUS; empty: none. */
std::string latest_foreign_key_error();
/** Notes an error, for that and for the message of the statement's session. */
void note_foreign_key_error(THD *thd, const ForeignKey &key, bool of_child);

/* Steps of an ALTER in place (table/alter_plan.h). */
int drop_foreign_key(THD *thd, const std::string &table, const std::string &key);
int rename_referring_columns(THD *thd, const std::string &table, const std::string &from, const std::string &to);

#endif
