/* SPDX-License-Identifier: GPL-2.0-only */
/* SHOW STATUS LIKE 'inkstone%': every counter and gauge of the engine by its own name, and those
   that InnoDB has a counterpart of also by InnoDB's. */
#ifndef INKSTONE_STATUS_H
#define INKSTONE_STATUS_H

#include "server/engine.h"

extern struct st_mysql_show_var inkstone_status[];

#endif
