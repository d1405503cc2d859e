/* SPDX-License-Identifier: GPL-2.0-only */
/* Foreign keys of tables that are made, altered, renamed and dropped. */
#ifndef INKSTONE_DDL_FOREIGN_KEYS_H
#define INKSTONE_DDL_FOREIGN_KEYS_H

#include "table/foreign_key.h"

/** What a new table, of the engine's name `name`, is to have: those that the statement defines, and
    where it is the copy that an ALTER makes those of the table that are left. Refuses what cannot
    be, with an error or a number that the server shows. */
int foreign_keys_for(THD *thd, const std::string &name, const TABLE *form, const HA_CREATE_INFO *info,
                     ForeignKeys *keys);
/** The columns of a table that foreign keys have, its own ones and those that refer to it. */
int find_referring_columns(THD *thd, const std::string &name, std::vector<std::string> *columns);
/** Why an ALTER in place must not be, said to the session; 0: it may. */
int refuse_altered_foreign_keys(THD *thd, const std::string &name, const TABLE *altered,
                                const Alter_inplace_info *info);
/** Whether a table that others refer to may be dropped; HA_ERR_ROW_IS_REFERENCED. */
int refuse_dropped_parent(THD *thd, const std::string &name);
/** Gives foreign keys that were named after their table its new name. */
int rename_foreign_keys(THD *thd, const std::string &from, const std::string &to);
/** Whether an ALTER gives its copy another name than the table had, which is put into `from`. */
bool is_renamed_by_copy(THD *thd, const std::string &to, std::string *from);
/** Foreign keys that refer to a table from now on refer to the name that its copy is about to take;
    those of the copy that were named after the table get that name. */
int rename_altered_foreign_keys(THD *thd, const std::string &copy, const std::string &from, const std::string &to);

#endif
