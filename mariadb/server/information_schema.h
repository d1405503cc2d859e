/* SPDX-License-Identifier: GPL-2.0-only */
/* The tables INFORMATION_SCHEMA.INKSTONE_TRX, INKSTONE_LOCKS, INKSTONE_LOCK_WAITS,
   INKSTONE_DURATIONS and INKSTONE_DURATION_HISTOGRAM, as plugins. */
#ifndef INKSTONE_INFORMATION_SCHEMA_H
#define INKSTONE_INFORMATION_SCHEMA_H

#include "server/engine.h"

int initialise_trx_table(void *plugin);
int initialise_locks_table(void *plugin);
int initialise_lock_waits_table(void *plugin);
int initialise_durations_table(void *plugin);
int initialise_histogram_table(void *plugin);
extern struct st_mysql_information_schema inkstone_information_schema;

#define INKSTONE_TABLE_PLUGIN(name, help, initialise)                                                 \
  {                                                                                                   \
    MYSQL_INFORMATION_SCHEMA_PLUGIN, &inkstone_information_schema, name, "Inkstone's authors", help,  \
        PLUGIN_LICENSE_GPL, initialise, nullptr, 0x0001, nullptr, nullptr, "0.1",                     \
        MariaDB_PLUGIN_MATURITY_EXPERIMENTAL                                                          \
  }

#endif
