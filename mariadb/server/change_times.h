/* SPDX-License-Identifier: GPL-2.0-only */
/* When tables were changed: information_schema.TABLES.UPDATE_TIME. Of tables that were changed
   since the server started, by name; a table that is made anew was not changed. */
#ifndef INKSTONE_CHANGE_TIMES_H
#define INKSTONE_CHANGE_TIMES_H

#include "common.h"
#include <set>
#include <string>

namespace change_times
{
/** A transaction that began then and has changed these has committed. */
void note(const std::set<std::string> &tables, time_t begun);
/** 0: it was not changed. */
time_t of(const std::string &table);
/** The table was dropped. */
void forget(const std::string &table);
void rename(const std::string &from, const std::string &to);
}

#endif
