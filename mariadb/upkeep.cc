/* SPDX-License-Identifier: GPL-2.0-only */
/* CHECK, ANALYZE and OPTIMIZE TABLE. */
#include "ha_inkstone.h"

int ha_inkstone::analyze(THD *, HA_CHECK_OPT *)
{
  share->forget_statistics();
  return info(HA_STATUS_CONST | HA_STATUS_VARIABLE) ? HA_ADMIN_FAILED : HA_ADMIN_OK;
}

/* The server recreates the table, as it does for InnoDB. */
int ha_inkstone::optimize(THD *, HA_CHECK_OPT *)
{
  return HA_ADMIN_TRY_ALTER;
}

int ha_inkstone::check(THD *thd, HA_CHECK_OPT *)
{
  ink_error error;
  ink_buffer text= {nullptr, 0, 0};
  int failed= ink_verify_table(share->engine_table(), &text, &error);
  ink_buffer_free(&text);
  if (!failed)
    return HA_ADMIN_OK;
  push_warning(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, error.message);
  return error.code == INK_CORRUPT ? HA_ADMIN_CORRUPT : HA_ADMIN_FAILED;
}
