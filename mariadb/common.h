/* SPDX-License-Identifier: GPL-2.0-only */
/* What every file of the handler includes: the server's private headers, in the order that they
   need, and the engine's C interface. */
#ifndef INKSTONE_COMMON_H
#define INKSTONE_COMMON_H

#define MYSQL_SERVER 1
#include <my_global.h>
#include "sql_class.h"
#include "sql_plugin.h"
#include "sql_table.h"
#include "handler.h"
#include "field.h"
#include "key.h"
#include "log.h"
#include "mysqld_error.h"

#include "inkstone.h"

/** Less than, equal to or greater than 0, as of strings of bytes. */
inline int compare_bytes(ink_slice one, ink_slice other)
{
  const size_t shared= MY_MIN(one.len, other.len);
  const int order= shared ? memcmp(one.data, other.data, shared) : 0;
  return order ? order : one.len < other.len ? -1 : one.len > other.len;
}

#endif
