/* SPDX-License-Identifier: GPL-2.0-only */
/* Kinds of ALTER TABLE: which this engine does in place, and which InnoDB does. */
#ifndef INKSTONE_ALTER_H
#define INKSTONE_ALTER_H

#include "server/engine.h"

/** Changes of which rows know nothing. */
static const alter_table_operations NO_CHANGE_OF_ROWS=
    ALTER_RENAME | ALTER_CHANGE_COLUMN_DEFAULT | ALTER_OPTIONS | ALTER_CHANGE_INDEX_COMMENT |
    ALTER_DROP_CHECK_CONSTRAINT | ALTER_RENAME_COLUMN |
    ALTER_COLUMN_NAME | ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN |
    ALTER_VIRTUAL_COLUMN_ORDER | ALTER_STORED_COLUMN_ORDER | ALTER_COLUMN_OPTION | ALTER_CHANGE_COLUMN |
    ALTER_PARSER_ADD_COLUMN | ALTER_PARSER_DROP_COLUMN | ALTER_INDEX_IGNORABILITY |
    ALTER_COLUMN_UNVERSIONED | ALTER_INDEX_ORDER | ALTER_DROP_FOREIGN_KEY;

/** Rows that are there stay as they are, and are read otherwise (codec/row_layout.h). */
static const alter_table_operations CHANGES_OF_PLACES=
    ALTER_ADD_STORED_BASE_COLUMN | ALTER_DROP_STORED_COLUMN | ALTER_COLUMN_NULLABLE |
    ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_COLUMN_INDEX_LENGTH;

static const alter_table_operations INDEX_CHANGES=
    ALTER_ADD_INDEX | ALTER_DROP_INDEX | ALTER_RENAME_INDEX | ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX |
    ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX | ALTER_DROP_UNIQUE_INDEX;

/** The table is made anew, beside writers (ddl/rebuild.h). */
static const alter_table_operations MAKES_ANEW= ALTER_RECREATE_TABLE | ALTER_ADD_PK_INDEX | ALTER_DROP_PK_INDEX;

/** What an ALTER is for InnoDB: a row format that is named makes the table anew. */
alter_table_operations wanted_of_innodb(const Alter_inplace_info *info);
/** Whether it is an ALTER IGNORE that adds a unique key: of rows with one value the first is
    kept. */
bool leaves_rows_out(const Alter_inplace_info *info);
/** Whether InnoDB does these in place, as far as their kinds tell. */
bool may_rebuild_in_innodb(alter_table_operations wanted);

/** handlerton::check_version: 0 if an ALTER in place to that definition has happened. */
int check_version(handlerton *, const char *path, const LEX_CUSTRING *version, ulonglong create_id);

#endif
