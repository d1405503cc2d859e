/* SPDX-License-Identifier: GPL-2.0-only */
/* Images of texts: weights, padding, levels (codec/text_order.h). */
#include "codec/text_order.h"
#include <algorithm>
#include <memory>
#include <mutex>
#include <new>

/* As many weights as there are. */
static const uint ALL_WEIGHTS= UINT_MAX16 * 64;

static const uchar REST_IS_LESS= 1, REST_IS_NOTHING= 2, REST_IS_GREATER= 3;

/** The weights of one text: on the stack while they are few. */
class Weights
{
public:
  Weights() : bytes(few), count(0), room(sizeof few) {}
  const uchar *data() const { return bytes; }
  size_t length() const { return count; }
  uchar *end() { return bytes + count; }
  size_t free_bytes() const { return room - count; }
  void truncate(size_t length) { count= length; }
  void grow(size_t more) { count+= more; }
  void put(uchar byte) { bytes[count++]= byte; }

  bool reserve(size_t more)
  {
    if (count + more <= room)
      return false;
    if (bytes == few && many.append(few, count))
      return true;
    many.truncate(count);
    if (many.reserve(more))
      return true;
    bytes= many.data();
    room= count + more;
    return false;
  }

private:
  uchar few[1024];
  Buffer many;
  uchar *bytes;
  size_t count, room;
};

static const size_t COLLATIONS_MAX= 4096;
static std::mutex made_mutex;
static std::unique_ptr<const TextOrder> made[2][COLLATIONS_MAX];

const TextOrder *TextOrder::of(CHARSET_INFO *charset, bool is_char)
{
  std::lock_guard<std::mutex> latch(made_mutex);
  std::unique_ptr<const TextOrder> &order= made[is_char][charset->number % COLLATIONS_MAX];
  try
  {
    if (!order || order->charset != charset)
      order.reset(new TextOrder(charset, is_char));
  }
  catch (const std::bad_alloc &)
  {
    return nullptr;
  }
  return order.get();
}

TextOrder::TextOrder(CHARSET_INFO *of_charset, bool is_char)
    : charset(of_charset), is_char(is_char),
      counts(is_char && charset->uca && (charset->state & MY_CS_NOPAD)), source(SERVER), code_point_bytes(0), blanks_kept(SIZE_MAX), ends_at_zero(false)
{
  choose();
}

void TextOrder::choose()
{
  const bool padded= !(charset->state & MY_CS_NOPAD);
  if (charset->uca)
  {
    /* A contraction may have blanks in it, of so many characters at most. */
    if (padded && charset->mbminlen == 1)
      blanks_kept= MY_UCA_MAX_CONTRACTION;
    /* Levels behind the first are padded in any case. */
    for (uint level= 0; level < MY_UCA_WEIGHT_LEVELS; level++)
      if (charset->levels_for_order & (1U << level))
        add_level(charset->levels_for_order == 1 ? 0 : MY_STRXFRM_LEVEL1 << level,
                  counts ? charset->mbminlen > 1 : padded || !levels.empty());
    return;
  }
  if (charset->state & MY_CS_STRNXFRM_BAD_NWEIGHTS)
  {
    /* latin2_czech_cs, cp1250_czech_cs: strnncollsp drops trailing blanks and compares the weights
       of all passes as one sequence, which strnxfrm writes. */
    blanks_kept= 0;
    add_level(0, false);
    return;
  }
  if (charset->mbmaxlen == 1)
  {
    /* In Thai, marks are compared behind all of the text, trailing blanks included. */
    if (padded && !(charset->state & MY_CS_NON1TO1))
      blanks_kept= 0;
    static const uchar one[]= {0, 'a'}, other[]= {0, 'b'};
    ends_at_zero= !padded && !(is_char ? charset->coll->strnncollsp_nchars(charset, one, 2, other, 2, 2, 0)
                                       : charset->coll->strnncollsp(charset, one, 2, other, 2));
    add_level(0, padded);
    return;
  }
  /* Behind an ill-formed unit of several bytes, what looks like a blank may be none. */
  if (padded && charset->mbminlen == 1)
    blanks_kept= 0;
  source= charset->state & MY_CS_UNICODE ? CODE_POINTS : RANKS;
  if (source == RANKS)
    find_ranks();
  else
  {
    uchar blank[4], weight[8];
    charset->cset->fill(charset, reinterpret_cast<char *>(blank), charset->mbminlen, ' ');
    code_point_bytes= charset->coll->strnxfrm(charset, weight, sizeof weight, 1, blank, charset->mbminlen, 0);
  }
  add_level(0, padded);
}

/* What a space weighs is asked of the collation itself. */
void TextOrder::add_level(uint flags, bool padded)
{
  Level level= {flags, padded, 1, {0, 0, 0, 0}, 0};
  uchar blank[4];
  charset->cset->fill(charset, reinterpret_cast<char *>(blank), charset->mbminlen, ' ');
  Weights weights;
  if (put_weights(weights, blank, charset->mbminlen, flags))
    throw std::bad_alloc();
  /* Of Unicode's algorithm a unit has two bytes, and padding is the first weight of a space. */
  level.unit_bytes= charset->uca ? 2 : MY_MIN(weights.length(), sizeof level.space);
  if (weights.length() < level.unit_bytes || !weights.length())
    level.padded= false; /* A space weighs nothing, so the shorter text is the lesser one. */
  else
    memcpy(level.space, weights.data(), level.unit_bytes);
  if (counts)
    level.count_bytes= level.padded ? 4 : 2;
  levels.push_back(level);
}

uint64 TextOrder::images_since() const
{
  if (counts || (is_char && (charset->state & MY_CS_NOPAD) && !strcmp(charset->cs_name.str, "tis620")))
    return 4;
  return charset->mbmaxlen > 1 || (charset->state & MY_CS_STRNXFRM_BAD_NWEIGHTS) ||
                 !strcmp(charset->cs_name.str, "tis620")
             ? 2
             : 1;
}

/* ---- Weights ---- */

size_t TextOrder::without_blanks(const uchar *text, size_t length) const
{
  if (blanks_kept == SIZE_MAX || !length)
    return length;
  size_t kept= charset->lengthsp(reinterpret_cast<const char *>(text), length);
  return MY_MIN(length, kept + blanks_kept * charset->mbminlen);
}

bool TextOrder::put_weights(Weights &weights, const uchar *text, size_t length, uint flags) const
{
  switch (source)
  {
  case CODE_POINTS:
    return put_code_points(weights, text, length);
  case RANKS:
    return put_ranks(weights, text, length);
  default:
    return put_server_weights(weights, text, length, flags);
  }
}

bool TextOrder::put_server_weights(Weights &weights, const uchar *text, size_t length, uint flags) const
{
  /* Of an empty text there may be weights, too: latin2_czech_cs marks the ends of its passes. */
  static const uchar nothing= 0;
  if (!length)
    text= &nothing;
  const char *begin= reinterpret_cast<const char *>(text);
  size_t characters= charset->mbmaxlen == 1 ? length : charset->numchars(begin, begin + length);
  /* strnxfrmlen wants the bytes of the longest characters. Should it promise too little, the room
     is used up. */
  size_t room= charset->coll->strnxfrmlen(charset, characters * charset->mbmaxlen) + 16;
  for (;; room*= 2)
  {
    if (weights.reserve(room))
      return true;
    size_t count= charset->coll->strnxfrm(charset, weights.end(), weights.free_bytes(), ALL_WEIGHTS,
                                          text, length, flags);
    if (count + 8 > weights.free_bytes())
      continue;
    if (ends_at_zero)
      if (const void *zero= memchr(weights.end(), 0, count))
        count= static_cast<const uchar *>(zero) - weights.end();
    weights.grow(count);
    return false;
  }
}

/* An ill-formed byte weighs more than any character. In units of two bytes, where the greatest
   character is ff ff, it is ff ff 01 and the byte, and that character is ff ff 00 00. In units of
   three no character begins with ff. */
bool TextOrder::put_code_points(Weights &weights, const uchar *text, size_t length) const
{
  const char *at= reinterpret_cast<const char *>(text), *end= at + length;
  while (at < end)
  {
    MY_STRCOPY_STATUS status;
    charset->well_formed_char_length(at, end, length, &status);
    const size_t run= status.m_source_end_pos - at, start= weights.length();
    if (put_server_weights(weights, reinterpret_cast<const uchar *>(at), run, 0) ||
        (code_point_bytes == 2 && escape_greatest(weights, start)) || weights.reserve(4))
      return true;
    at+= run;
    if (at == end)
      break;
    uchar quirk[4];
    if (is_four_bytes_to_the_server(at, end, quirk))
    {
      if (put_server_weights(weights, quirk, sizeof quirk, 0))
        return true;
      at+= sizeof quirk;
      continue;
    }
    weights.put(0xff);
    if (code_point_bytes == 2)
      weights.put(0xff);
    weights.put(1);
    weights.put(static_cast<uchar>(*at++));
  }
  return false;
}

/* Of utf8mb4 the server's comparison takes e0 90..9f and two more bytes, which nothing else takes
   for a character, for one of four bytes that begins with f0. */
bool TextOrder::is_four_bytes_to_the_server(const char *at, const char *end, uchar (&character)[4]) const
{
  if (charset->mbminlen != 1 || charset->mbmaxlen != 4 || end - at < 4)
    return false;
  memcpy(character, at, sizeof character);
  if (character[0] != 0xe0 || (character[1] & 0xf0) != 0x90)
    return false;
  character[0]= 0xf0;
  return charset->charlen(character, character + 4) == 4;
}

/* Puts 00 00 behind each unit of ff ff from `start` on. */
bool TextOrder::escape_greatest(Weights &weights, size_t start)
{
  if (!memchr(weights.data() + start, 0xff, weights.length() - start))
    return false;
  const size_t length= weights.length() - start;
  Buffer copy;
  if (copy.append(weights.data() + start, length) || weights.reserve(length))
    return true;
  const uchar *plain= copy.data();
  weights.truncate(start);
  for (size_t i= 0; i + 1 < length; i+= 2)
  {
    weights.put(plain[i]);
    weights.put(plain[i + 1]);
    if (plain[i] == 0xff && plain[i + 1] == 0xff)
    {
      weights.put(0);
      weights.put(0);
    }
  }
  return false;
}

bool TextOrder::put_ranks(Weights &weights, const uchar *text, size_t length) const
{
  if (weights.reserve(2 * length + 1))
    return true;
  const uchar *end= text + length;
  for (const uchar *at= text; at < end;)
  {
    int found= charset->charlen(at, end);
    uint16 rank= found == 3   ? ranks_of_three[at[1] << 8 | at[2]]
                 : found == 2 ? ranks_of_two[at[0] << 8 | at[1]]
                              : ranks_of_one[at[0]];
    weights.put(static_cast<uchar>(rank >> 8));
    weights.put(static_cast<uchar>(rank));
    at+= found > 0 ? found : 1;
  }
  return false;
}

/* ---- Images ---- */

static bool put_padded(Buffer &out, const uchar *weights, size_t length, const uchar *space, size_t unit)
{
  while (length >= unit && !memcmp(weights + length - unit, space, unit))
    length-= unit;
  if (out.reserve(length + length / unit + 2 * unit + 2))
    return true;
  /* How what follows the spaces at hand compares to them; 0: there are none. Trailing ones are
     gone, so something follows. */
  int order= 0;
  for (size_t at= 0; at + unit <= length; at+= unit)
  {
    memcpy(out.end(), weights + at, unit);
    out.grow_to(out.end() + unit);
    if (memcmp(weights + at, space, unit))
    {
      order= 0;
      continue;
    }
    for (size_t next= at + unit; next < length && order == 0; next+= unit)
      order= memcmp(weights + next, space, unit);
    out.put(order < 0 ? REST_IS_LESS : REST_IS_GREATER);
  }
  memcpy(out.end(), space, unit);
  out.grow_to(out.end() + unit);
  out.put(REST_IS_NOTHING);
  return false;
}

static const uchar *skip_padded(const uchar *at, const uchar *end, uchar flip, const uchar *space, size_t unit)
{
  for (; at + unit < end; at+= unit)
  {
    size_t same= 0;
    while (same < unit && (at[same] ^ flip) == space[same])
      same++;
    if (same < unit)
      continue;
    if ((at[unit] ^ flip) == REST_IS_NOTHING)
      return at + unit + 1;
    at++;
  }
  return nullptr;
}

bool put_escaped(Buffer &out, const uchar *bytes, size_t length)
{
  if (out.reserve(2 * length + 1))
    return true;
  for (size_t i= 0; i < length; i++)
  {
    if (bytes[i] <= 1)
    {
      out.put(1);
      out.put(static_cast<uchar>(bytes[i] + 1));
    }
    else
      out.put(bytes[i]);
  }
  out.put(0);
  return false;
}

const uchar *skip_escaped(const uchar *at, const uchar *end, uchar flip)
{
  while (at < end && (*at ^ flip) != 0)
    at++;
  return at < end ? at + 1 : nullptr;
}

bool TextOrder::put(Buffer &out, const uchar *text, size_t length) const
{
  length= without_blanks(text, length);
  Weights weights;
  for (const Level &level : levels)
  {
    weights.truncate(0);
    if (put_weights(weights, text, length, level.flags) ||
        (level.padded ? put_padded(out, weights.data(), weights.length(), level.space, level.unit_bytes)
                      : put_escaped(out, weights.data(), weights.length())) ||
        (level.count_bytes && put_counts(out, weights, text, length, level)))
      return true;
  }
  return false;
}

const uchar *TextOrder::skip(const uchar *at, const uchar *end, uchar flip) const
{
  for (const Level &level : levels)
  {
    at= level.padded ? skip_padded(at, end, flip, level.space, level.unit_bytes) : skip_escaped(at, end, flip);
    if (!at || static_cast<size_t>(end - at) < level.count_bytes)
      return nullptr;
    at+= level.count_bytes;
  }
  return at;
}

/* ---- Counts of a CHAR ---- */

bool TextOrder::put_counts(Buffer &out, const Weights &weights, const uchar *text, size_t length,
                           const Level &level) const
{
  size_t weightless;
  if (trailing_weightless(weights, text, length, level.flags, &weightless) || out.reserve(level.count_bytes))
    return true;
  const auto put= [&](size_t count) {
    out.put(static_cast<uchar>(count >> 8));
    out.put(static_cast<uchar>(count));
  };
  if (level.padded)
    put(weights.length() / level.unit_bytes);
  put(weightless);
  return false;
}

/* How many characters at the end add nothing to these weights. */
bool TextOrder::trailing_weightless(const Weights &weights, const uchar *text, size_t length, uint flags,
                                    size_t *count) const
{
  *count= 0;
  const char *begin= reinterpret_cast<const char *>(text);
  /* A blank weighs something, and most end in one. */
  if (!length || charset->lengthsp(begin, length) < length)
    return false;
  std::vector<size_t> begins;
  try
  {
    for (size_t at= 0; at < length;)
    {
      begins.push_back(at);
      const int found= charset->charlen(text + at, text + length);
      at+= found > 0 ? found : charset->mbminlen;
    }
  }
  catch (const std::bad_alloc &)
  {
    return true;
  }
  for (; *count < begins.size(); ++*count)
  {
    const size_t place= begins.size() - 1 - *count, begin_of= begins[place];
    const size_t end_of= place + 1 < begins.size() ? begins[place + 1] : length;
    Weights alone, shorter;
    if (put_weights(alone, text + begin_of, end_of - begin_of, flags) || put_weights(shorter, text, begin_of, flags))
      return true;
    /* The end of a contraction may add nothing, and weigh something. */
    if (alone.length() || shorter.length() != weights.length() || memcmp(shorter.data(), weights.data(), weights.length()))
      return false;
  }
  return false;
}
