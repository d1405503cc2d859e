/* SPDX-License-Identifier: GPL-2.0-only */
/* Partitioned tables over a crash: what the engine adds so that the server's ddl log can finish or
   revert what it finds, and what is done about the rest. */
#ifndef INKSTONE_PARTITIONS_H
#define INKSTONE_PARTITIONS_H

#include "server/engine.h"
#include "server/partition_path.h"
#include <string>
#include <vector>

/** Engine names of a table's partitions; `table` is "db/t". */
int partitions_of(THD *thd, const std::string &table, std::vector<std::string> *names);

/** Before a partition is renamed with its table: notes both names. */
int note_rename(THD *thd, const char *from, const char *to);
/** Renames or drops a partitioned table, which the server's ddl log asks the engine of its
    partitions for; HA_ERR_NO_SUCH_TABLE or ENOENT if it is none. */
int rename_whole(THD *thd, const char *from, const char *to);
int drop_whole(THD *thd, const char *path);

/** When the engine starts: puts together tables whose renaming a crash interrupted. */
void begin_ddl_recovery();
/** handlerton::signal_ddl_recovery_done: drops what is left of partitioned tables. */
int end_ddl_recovery(handlerton *);

#endif
