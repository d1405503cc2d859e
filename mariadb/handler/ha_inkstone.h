/* SPDX-License-Identifier: GPL-2.0-only */
/* The handler: what the server does with one open table. It translates rows, keys, conditions and
   errors; everything else is the engine's.

   | file               | subject                                             |
   |--------------------|-----------------------------------------------------|
   | ha_inkstone.cc     | open, lock, position, flags                         |
   | access.h           | the session, transaction and locks that it works in |
   | read.cc            | reading rows, by index and without                  |
   | search.cc, scan.cc | where a search begins and ends; the cursor in it    |
   | lookup_ahead.cc    | rows of an index's entries, read before             |
   | write.cc           | insert, update, delete                              |
   | foreign_keys.cc    | parents and children of rows that are changed       |
   | bulk.cc            | many inserts of one statement                       |
   | sorted_insert.cc   | sorted rows into trees that are not seen yet        |
   | autoinc.cc         | AUTO_INCREMENT                                      |
   | estimate.cc        | what the optimizer asks                             |

   What changes or looks at tables as a whole is in ddl/. */
#ifndef HA_INKSTONE_H
#define HA_INKSTONE_H

#include "codec/entry_sum.h"
#include "codec/row_buffers.h"
#include "handler/access.h"
#include "handler/autoinc.h"
#include "handler/lookup_ahead.h"
#include "handler/scan.h"
#include "references/references.h"

struct AlterContext;
struct BuiltIndex;
struct IndexBuild;
struct Progress;
/** Rows that a bulk insert holds back, and what becomes of them. */
class BulkInsert;

class ha_inkstone final : public handler
{
public:
  ha_inkstone(handlerton *hton, TABLE_SHARE *table_arg);
  ~ha_inkstone() override;

  /* ha_inkstone.cc */
  Table_flags table_flags() const override;
  ulong index_flags(uint index, uint part, bool all_parts) const override;
  const char *index_type(uint) override { return "BTREE"; }
  uint max_supported_keys() const override { return MAX_KEY; }
  uint max_supported_key_length() const override;
  uint max_supported_key_part_length() const override { return KEY_PART_BYTES_MAX; }
  int open(const char *name, int mode, uint test_if_locked) override;
  int close() override;
  handler *clone(const char *name, MEM_ROOT *mem_root) override;
  THR_LOCK_DATA **store_lock(THD *thd, THR_LOCK_DATA **to, thr_lock_type lock_type) override;
  uint lock_count() const override { return 0; }
  int external_lock(THD *thd, int lock_type) override;
  int start_stmt(THD *thd, thr_lock_type lock_type) override;
  int extra(enum ha_extra_function operation) override;
  int reset() override;
  void position(const uchar *record) override;
  int cmp_ref(const uchar *one, const uchar *other) override;
  bool get_error_message(int error, String *text) override;
  void print_error(int error, myf flags) override;
  void unlock_row() override;
  bool was_semi_consistent_read() override { return scan.shows_unlocked(); }
  void try_semi_consistent_read(bool yes) override { scan.want_semi_consistent(yes); }
  uint8 table_cache_type() override { return HA_CACHE_TBL_NOCACHE; }

  /* read.cc */
  int rnd_init(bool scan) override;
  int rnd_end() override;
  int rnd_next(uchar *record) override;
  int rnd_pos(uchar *record, uchar *pos) override;
  int index_init(uint index, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar *record, const uchar *key, key_part_map map,
                     enum ha_rkey_function how) override;
  int index_read_last_map(uchar *record, const uchar *key, key_part_map map) override;
  int index_first(uchar *record) override;
  int index_last(uchar *record) override;
  int index_next(uchar *record) override;
  int index_prev(uchar *record) override;
  int index_next_same(uchar *record, const uchar *key, uint length) override;
  int read_range_first(const key_range *start, const key_range *end, bool eq_range,
                       bool sorted) override;
  Item *idx_cond_push(uint index, Item *condition) override;
  bool rowid_filter_push(Rowid_filter *filter) override;

  /* write.cc */
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong desired,
                          ulonglong *first, ulonglong *reserved) override
  {
    auto_increment.reserve(offset, increment, desired, first, reserved);
  }
  int write_row(const uchar *record) override;
  int update_row(const uchar *old_record, const uchar *new_record) override;
  int delete_row(const uchar *record) override;

  /* foreign_keys.cc */
  int get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list) override;
  int get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *list) override;
  bool referenced_by_foreign_key() const noexcept override;
  bool can_switch_engines() override;
  char *get_foreign_key_create_info() override;
  void free_foreign_key_create_info(char *text) override;
  bool get_foreign_dup_key(char *child, uint child_bytes, char *index, uint index_bytes) override;

  /* bulk.cc */
  void start_bulk_insert(ha_rows rows, uint flags) override;
  int end_bulk_insert() override;

  /* estimate.cc */
  int info(uint flag) override;
  ha_rows records_in_range(uint index, const key_range *min, const key_range *max,
                           page_range *pages) override;
  double scan_time() override;
  double read_time(uint index, uint ranges, ha_rows rows) override;
  ha_rows estimate_rows_upper_bound() override;
  /* Every index may serve ORDER BY and GROUP BY without LIMIT, the clustered one above all. */
  const key_map *keys_to_use_for_scanning() override { return &key_map_full; }

  /* ddl/page_options.cc */
  enum row_type get_row_type() const override;
  /** nullptr while it is not open. */
  const ink_table *engine_table() const { return access.share ? access.share->engine_table() : nullptr; }

  /* ddl/tables.cc */
  int create(const char *name, TABLE *form, HA_CREATE_INFO *info) override;
  int rename_table(const char *from, const char *to) override;
  int delete_table(const char *name) override;
  int truncate() override;

  /* ddl/alter.cc */
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE *altered,
                                                             Alter_inplace_info *info) override;
  bool check_if_incompatible_data(HA_CREATE_INFO *info, uint table_changes) override;
  bool can_convert_nocopy(const Field &field, const Column_definition &after) const override;
  Compare_keys compare_key_parts(const Field &field, const Column_definition &after, const KEY_PART_INFO &old_part,
                                 const KEY_PART_INFO &new_part) const override;
  bool prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) override;

  /* ddl/alter_counters.cc */
  int reset_auto_increment(ulonglong value) override;
  void update_create_info(HA_CREATE_INFO *info) override;

  /* ddl/upkeep.cc */
  int analyze(THD *thd, HA_CHECK_OPT *options) override;
  int optimize(THD *thd, HA_CHECK_OPT *options) override;
  int check(THD *thd, HA_CHECK_OPT *options) override;
  /* The server recreates the table then. */
  int repair(THD *, HA_CHECK_OPT *) override { return is_outdated() ? HA_ADMIN_TRY_ALTER : HA_ADMIN_NOT_IMPLEMENTED; }
  int check_for_upgrade(HA_CHECK_OPT *) override { return is_outdated() ? HA_ADMIN_NEEDS_ALTER : HA_ADMIN_OK; }

  /* ddl/transport.cc */
  int discard_or_import_tablespace(my_bool discard) override;

  /* Of one column, in pages of any size. */
  static const uint KEY_PART_BYTES_MAX= 3072;

private:
  friend class BulkInsert;

  /* ddl/alter.cc */
  enum_alter_inplace_result way_to_alter(const TABLE *altered, Alter_inplace_info *info);
  int find_added(TABLE *altered, Alter_inplace_info *info, std::vector<RowLayout::Addition> *added);
  RowLayout altered_layout(const TABLE *altered, Alter_inplace_info *info,
                           const std::vector<RowLayout::Addition> &added) const;
  bool build_indexes(TABLE *altered, Alter_inplace_info *info, AlterContext &context);
  int commit_altered(const std::vector<AlterContext *> &contexts, TABLE *altered, Alter_inplace_info *info);

  /* ddl/index_build.cc */
  int track_writers(IndexBuild *build);
  int begin_build(IndexBuild *build);
  int build_index(const KEY &altered_key, const std::vector<Field *> &columns, IndexBuild *build);
  int fill_index(BuiltIndex &index, const ink_transaction *seen);
  int fill_from_rows(BuiltIndex &index, const ink_transaction *seen, Progress *progress);
  int make_entry(const BuiltIndex &index, ink_row row);
  int insert_sorted(BuiltIndex &index, const ink_transaction *seen, ink_sorter *sorter, Progress *progress);
  int show_row_of(const KeyCodec &of_index, const KEY &key, ink_row entry, const ink_transaction *seen= nullptr);
  int get_seen(const ink_transaction *seen, ink_slice image, ink_slice *row, bool *found);
  int show_duplicate(BuiltIndex &index, const ink_transaction *seen, ink_row entry);
  int take_changed(IndexBuild *build, OwnedTransaction *now, ink_changed_rows *changed);
  int catch_up(IndexBuild *build, size_t *count);
  int catch_up_beside_writers(IndexBuild *build);
  int make_entry_of(const BuiltIndex &index, const ink_transaction *seen, ink_slice key, bool *found);
  int exchange_entries(BuiltIndex &index, const ink_transaction *before, const ink_transaction *now,
                       const ink_changed_rows &changed);
  int exchange_entry(const BuiltIndex &index, const ink_transaction *before, const ink_transaction *now,
                     ink_slice key, const ink_transaction *writing, ink_sorter *sorter);
  int complete_build(IndexBuild *build);

  /* ddl/rebuild.cc */
  int begin_rebuild(TABLE *altered, Alter_inplace_info *info, const std::vector<Field *> &columns, IndexBuild *build);
  int fill_rebuilt(IndexBuild *build);
  int make_rebuilt_entry(const BuiltIndex &index, ink_slice key);
  int show_rebuilt_duplicate(BuiltIndex &index, ink_row entry);

  /* ddl/alter_counters.cc */
  enum Reserved { KEPT, FORGOTTEN, NOTED };
  bool makes_anew_in_innodb(alter_table_operations wanted, const TABLE *altered, const Alter_inplace_info *info) const;
  Reserved reserved_after(alter_table_operations wanted, const TABLE *altered, const Alter_inplace_info *info) const;
  void count_altered(AlteredCounters::Counter *old);
  void note_counter(alter_table_operations wanted, const TABLE *altered, const Alter_inplace_info *info);
  void recount_altered();
  int alter_counter(const TABLE *altered, const Alter_inplace_info *info);
  int set_first_auto_increment(const char *path, const TABLE *form, const HA_CREATE_INFO *info);
  int greatest_auto_increment(ulonglong *next);
  int greatest_uncommitted(ulonglong *greatest);
  int find_auto_increment();
  int set_behind_rows(ulonglong next);
  int lower_auto_increment(ulonglong wanted);
  int forget_reserved();

  /* ddl/upkeep.cc */
  bool has_unknown_tree(THD *thd);
  int check_entries(THD *thd);
  template <class Check> int check_rows(Check check);
  int put_entry_of_row(uint index);
  int add_entries_of_row(EntrySums *sums);
  int add_entries(THD *thd, uint index, EntrySum *sum);
  int check_entries_of_row(THD *thd);
  /** Pages that a scan of the table reads, but for long values. */
  uint64 clustered_pages= 0;
  /** More rows than fit into them, as InnoDB counts. */
  ha_rows rows_upper_bound= 0;

  /* ddl/transport.cc */
  int begin_export(THD *thd);
  int write_export(THD *thd);
  void end_export();
  int replace_by_empty(const std::vector<ink_row> &facts);
  int discard_table();
  int import_table();

  /* ha_inkstone.cc */
  TableShare *get_share();
  int use_session(THD *thd);
  void begin_statement();
  int refuse_lock(THD *thd, int lock_type);
  void hide_outdated_indexes();
  int unlock(THD *thd);
  THD *thd() const { return access.session ? access.session->thd : ha_thd(); }
  int failure(const ink_error &error) { return handler_error(thd(), error); }
  ink_transaction *transaction() const { return access.transaction(); }
  Counter &counter() const { return access.share->auto_increment(); }
  /* Whether the indexes were made by a version that sorted the table's texts otherwise: they are
     not used. */
  bool is_outdated() const { return access.share->image_version() < codec.images_since(); }
  bool has_unique_key() const;
  int begin_own();
  int begin_unlocked();
  int end_own(int failed);

  /* read.cc */
  enum { SKIPPED= -1 };
  int next(uchar *record, bool beyond_bound);
  int next_found(uchar *record, bool stops);
  int deliver(ink_row row, uchar *record);
  int deliver_entry(ink_row row, uchar *record);
  int look_up_ahead();
  int deliver_row_of(ink_slice row_key, uchar *record, bool filters);
  bool wants_unread_key() const;
  check_result_t check_condition();
  check_result_t check_filter();
  int get_row(ink_slice row_key, uchar *record, bool *found);
  int get(const ink_tree *tree, ink_slice image, OwnedBytes *bytes, ink_slice *found_value, bool *found);
  int read_point(uchar *record);
  int get_row_outline(ink_slice row_key, uchar *record, bool *found);
  int fill(ink_slice key, ink_slice value, uchar *record);
  int fill(ink_slice key, ink_slice inline_bytes, OutsideParts &outside, uchar *record);
  int show_row(ink_slice key, ink_slice value);
  void note_row_id(ink_slice key);
  const ink_tree *tree_of(uint index) const;
  const ink_tree *active_tree() const;
  const KeyCodec &active_codec() const { return codec.indexes[active_index]; }
  bool covering() { return keyread_enabled() && keyread == active_index; }
  int complete_apart(uchar *record);
  void compute_virtual();
  void compute_unread_key();
  bool is_unread_virtual(const KeyPartCodec &part) const;
  bool keep_blobs(uchar *record);
  bool reads_all_columns() const { return access.lock != INK_LOCK_NONE && access.writes; }

  /* foreign_keys.cc */
  int prepare_references(THD *thd);
  int lock_parents(THD *thd);
  bool fills_altered(THD *thd) const;
  bool looks_for_parents() const;
  bool is_checked(const Reference &reference) const;
  int check_parent(Reference &reference, const uchar *record);
  int check_parents(uint index, const uchar *record);
  bool concerns_children(const Reference &reference, const uchar *old_record, const uchar *record) const;
  bool concerns(Reference &reference, uint index) const;
  int refuse_children(uint index, const uchar *old_record, const uchar *record);
  int put_children_image(Reference &reference, const uchar *old_record, const uchar *record, Buffer *image);
  int change_children(const uchar *old_record, const uchar *record);
  int change_children_by(const Reference &reference, const Buffer &image, const uchar *record);
  ha_inkstone *opened_child(const ForeignKey &key) const;
  int follow(const Reference &reference, const Buffer &image, const ha_inkstone &parent, const uchar *record);
  int collect(const Reference &reference, const Buffer &image, std::vector<std::string> *rows);
  int follow_row(ink_slice row_key, const Reference &reference, const ha_inkstone &parent, const uchar *record);
  int put_parent(const Reference &reference, const ha_inkstone &parent, const uchar *record);
  int note_refusing_child();

  /* write.cc */
  int compute_behind_triggers();
  int insert_before_reserving();
  int insert_row(const uchar *record);
  int insert_entries(const uchar *record);
  bool empties_geometry(const uchar *old_record, const uchar *new_record) const;
  int update_entries(const uchar *old_record, const uchar *new_record, bool moved);
  int update_entry(uint index, const uchar *old_record, const uchar *new_record);
  int change_row(const uchar *old_record, const uchar *new_record);
  int remove_row(const uchar *record);
  int remove_entry(uint index, const Buffer &key);
  uint32_t lock_of_duplicate() const;
  int insert(const ink_tree *tree, ink_slice key, ink_slice value);
  int insert_clustered(ink_slice key);
  int undo_to(const ink_mark &mark, int failed);
  void count_change();

  Access access;
  TableCodec codec;
  Scan scan;
  LookupAhead lookups;
  RowBuffers buffers;
  AutoIncrement auto_increment;
  std::unique_ptr<BulkInsert> bulk;
  References references;
  /** Whether the statement looks at parents and children of the rows that it changes. */
  bool checks_references;
  /** The foreign key by which rows of this table follow their parent now: they need not look for
      it. */
  std::string follows_key;
  bool ignores_duplicates;
  /** Whether the server fills a table that no other session sees, and that goes if that fails. */
  bool fills_copy;
  /** Whether the session knows that its transaction changes the table. */
  bool is_change_noted;
  /** Whether the server says where the range ends that it reads. */
  bool use_end_range;
  /** The place of a row, and another one that it is compared with. */
  Buffer place, other_place;
  /** Of an entry, the row's key; a key as its tree has it; long values of a row in a place of its
      own (complete_apart). */
  Buffer scratch, cut_key, kept_blobs;
  /** The current row's key in the clustered tree, if it was looked up and thereby locked; else
      empty. */
  Buffer locked_key;
  OwnedBytes row_value, entry_value;
  /** Of a row that was looked up: its bytes without the parts that lie outside, and those. */
  Buffer row_inline;
  OutsideParts row_outside;
  /** FLUSH TABLES ... FOR EXPORT holds the table still. */
  OwnedExport exporting;
};

#endif
