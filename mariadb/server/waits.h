/* SPDX-License-Identifier: GPL-2.0-only */
/* Lock waits, reported to the server: workers of a replica commit in the primary's order, and only
   the server knows that order. And deadlocks, reported to its error log. */
#ifndef INKSTONE_WAITS_H
#define INKSTONE_WAITS_H

#include "server/engine.h"

/** Has the open database report its lock waits. Owners of transactions are THDs. */
void report_lock_waits();

/** When the latest deadlock was found; 0: none since the start. */
time_t latest_deadlock_time();

#endif
