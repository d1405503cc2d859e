/* SPDX-License-Identifier: GPL-2.0-only */
/* The database of temporary tables: a scratch one, beside the one that is kept. Nothing of it is
   logged or synced, and it is gone when the server ends, however that happens. It is made when the
   first temporary table is, and kept until the plugin is shut down. */
#ifndef INKSTONE_TEMPORARY_H
#define INKSTONE_TEMPORARY_H

#include "server/engine.h"

/** Whether the engine's name of a table is that of a temporary one, by the server's prefix. */
bool is_temporary_table(ink_slice name);

/** The database that has the table of a name, or would have it. */
ink_database *database_of(ink_slice name);

/** The database of temporary tables; nullptr: there was none of them yet. */
ink_database *temporary_database();

/** Makes the database of temporary tables, unless it is there. None is made beside one that can
    only be read: that refuses the tables. */
int make_temporary_database(THD *thd);

/** What is left of it goes; its tables and transactions must have been given back. */
void close_temporary_database();

#endif
