/* SPDX-License-Identifier: GPL-2.0-only */
/* Tables that are made, dropped and renamed: what other files need of it. */
#ifndef INKSTONE_TABLES_H
#define INKSTONE_TABLES_H

#include "ddl/page_options.h"
#include <string>
#include <vector>

/** Ends the name of a table under construction that is to take another's place. */
#define REPLACEMENT "#replacement"

/** Makes an empty table with these trees beside its rows, of which these facts are known; nothing
    is left of it if that fails. */
int create_table(THD *thd, ink_slice name, const std::vector<ink_slice> &trees, const PageOptions &pages,
                 const std::vector<ink_row> &facts);
/** What the statement asks for and the engine refuses; nullptr: nothing. */
const char *refused_option(THD *thd, const HA_CREATE_INFO *info);
/** Whether a table is one that the server has named for a statement of its own: the copy that an
    ALTER makes, what that replaces, or a partition's. */
bool is_copy_of_statement(const std::string &name);
/** Waits until no prepared transaction has changed rows of these tables, as long as a lock is
    waited for. */
int wait_for_prepared(THD *thd, const std::vector<std::string> &tables);
/** The warning of a statement that a discarded table takes. */
void warn_of_discarded(THD *thd, const TABLE *table);
/** Whether a table is discarded, and a file is there for it: they go with it. */
bool waits_for_files(THD *thd, const std::string &table);
/** Removes the files of an export, or of an import. */
void remove_files(const std::string &table);
/** Drops a table; ENOENT if there is none. */
int drop_table(const char *path);
/** Drops what is left of a database's tables. */
void drop_database(handlerton *, char *path);
/** Finishes what a crash interrupted: temporary tables go. */
int finish_interrupted_ddl();

#endif
