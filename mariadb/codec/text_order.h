/* SPDX-License-Identifier: GPL-2.0-only */
/* Text as bytes that sort as the server compares text.

   Promise: for texts a and b of a collation, memcmp of what `put` makes of them has the sign of the
   collation's strnncollsp(a, b), also for ill-formed texts. `cargo xtask mariadb --collations`
   tests it for every collation.

   Words:
   - Weight: a number that the collation gives to a character, to several (contractions), or to a
     part of one (expansions). The server compares texts by their sequences of weights.
   - Level: collations that tell accents or case have several sequences; a later one counts where
     all before it are equal.
   - Unit: the bytes of one weight. All weights of a level have as many.
   - Padded: the shorter sequence is as if it went on with spaces for ever. Else it is the lesser
     one.

   Where the weights come from:
   - SERVER: the collation's strnxfrm, which walks the text as its strnncollsp does. Unicode's
     algorithm (contractions, expansions, several levels) and the character sets of one byte.
   - CODE_POINTS: strnxfrm of each well-formed run. It stops at an ill-formed byte, where
     strnncollsp takes that for a weight above all others.
   - RANKS: the strnxfrm of these sets (big5, gbk, sjis, ujis, ...) does not agree with their
     strnncollsp. They have fewer than 65536 characters of at most three bytes, and compare one
     after the other: all are sorted once, by strnncollsp itself, and their places are the weights.

   A CHAR(n) of NOPAD and Unicode's algorithm is compared as InnoDB compares it, by
   strnncollsp_nchars: n characters each, and behind the weights of a level it counts those that
   weigh nothing at the end: the text with more of them is the greater one. Where a character has
   two bytes or more, InnoDB goes on with spaces behind the end (it counts bytes), and of two that
   are equal then the one with fewer weights is the lesser one. All levels are so.

   A level that is not padded: 00 ends it; 00 and 01 within are written as 01 01 and 01 02. A padded
   one: trailing spaces are cut off, and each space is followed by a byte that says how the rest
   compares to spaces: 1 less, 2 nothing is left, 3 greater. The end is such a space with 2. So
   every image tells where it ends. */
#ifndef INKSTONE_TEXT_ORDER_H
#define INKSTONE_TEXT_ORDER_H

#include "codec/buffer.h"
#include <vector>

/** Bytes, so that memcmp sorts them and their end is known (see above). True: out of memory. */
bool put_escaped(Buffer &out, const uchar *bytes, size_t length);
/** Where such bytes end; nullptr if they do not end before `end`. `flip`: 0xff if they are
    inverted. */
const uchar *skip_escaped(const uchar *at, const uchar *end, uchar flip);

class Weights;

class TextOrder
{
public:
  /** That of a collation, for columns CHAR(n) or all others: made when it is first asked for, and
      kept. nullptr: out of memory. */
  static const TextOrder *of(CHARSET_INFO *charset, bool is_char);

  /** Appends the image of a text. True: out of memory. */
  bool put(Buffer &out, const uchar *text, size_t length) const;
  /** Where an image ends, nullptr if it does not end before `end`. `flip`: 0xff if its bytes are
      inverted. */
  const uchar *skip(const uchar *at, const uchar *end, uchar flip) const;

  /** The version (see meta.h) since which its images are as they are now. */
  uint64 images_since() const;

private:
  enum Source { SERVER, CODE_POINTS, RANKS };
  struct Level
  {
    /** What strnxfrm is told: which level. */
    uint flags;
    bool padded;
    size_t unit_bytes;
    uchar space[4];
    /** Bytes behind the weights: numbers of a CHAR. */
    size_t count_bytes;
  };

  TextOrder(CHARSET_INFO *of_charset, bool is_char);
  void choose();
  void add_level(uint flags, bool padded);
  void find_ranks();
  bool put_counts(Buffer &out, const Weights &weights, const uchar *text, size_t length, const Level &level) const;
  bool trailing_weightless(const Weights &weights, const uchar *text, size_t length, uint flags, size_t *count) const;

  size_t without_blanks(const uchar *text, size_t length) const;
  bool put_weights(Weights &weights, const uchar *text, size_t length, uint flags) const;
  bool put_server_weights(Weights &weights, const uchar *text, size_t length, uint flags) const;
  bool put_code_points(Weights &weights, const uchar *text, size_t length) const;
  bool put_ranks(Weights &weights, const uchar *text, size_t length) const;
  bool is_four_bytes_to_the_server(const char *at, const char *end, uchar (&character)[4]) const;
  static bool escape_greatest(Weights &weights, size_t start);

  CHARSET_INFO *const charset;
  const bool is_char;
  /** A CHAR of Unicode's algorithm, not padded: see put_counts. */
  const bool counts;
  Source source;
  std::vector<Level> levels;
  /** CODE_POINTS: bytes of a unit, two or three. */
  size_t code_point_bytes;
  /** Trailing blanks beyond so many change no comparison and are not looked at. */
  size_t blanks_kept;
  /** The comparison ends at a weight of 0 (tis620_thai_nopad_ci uses strcmp). */
  bool ends_at_zero;
  /** RANKS: of characters of one byte and of ill-formed bytes, of characters of two, and by the
      last two of three bytes (all of which begin with the same one). */
  std::vector<uint16> ranks_of_one, ranks_of_two, ranks_of_three;
};

#endif
