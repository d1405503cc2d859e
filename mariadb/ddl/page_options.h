/* SPDX-License-Identifier: GPL-2.0-only */
/* How the pages of a table are kept: what its definition says of it, in the options PAGE_PLACEMENT
   and PAGE_COMPRESSED, ROW_FORMAT and KEY_BLOCK_SIZE, and what the table is. */
#ifndef INKSTONE_PAGE_OPTIONS_H
#define INKSTONE_PAGE_OPTIONS_H

#include "server/engine.h"
#include <string>
#include <utility>
#include <vector>

/** Options of a table in the engine: name and value. */
typedef std::vector<std::pair<std::string, std::string>> PageOptions;

/** Options that a definition can have of this engine's own. */
extern ha_create_table_option inkstone_table_options[];

/** Whether an option of a definition is one of them. */
bool is_page_option(const LEX_CSTRING &name);
/** What a definition says against itself; nullptr: nothing. */
const char *page_contradiction(const HA_CREATE_INFO *info);
/** What an opened table of the engine was made with. */
PageOptions page_options_of(const ink_table *table);
/** Whether the pages of one are compressed. */
bool has_compressed_pages(const ink_table *table);
/** What a new table is to be made with: as its definition says, or as the table is that the
    statement copies, if its definition does not contradict that. What is left open the server's
    variables say. */
void page_options_for(THD *thd, const HA_CREATE_INFO *info, PageOptions *options);
/** Whether an ALTER asks for pages that are kept otherwise than those of the table are. */
bool alters_pages(THD *thd, const TABLE *altered, const HA_CREATE_INFO *info);

#endif
