//! A statement as a tree of text and lists, so that shrinking can take parts of it away and leave
//! SQL.
//!
//! *Tag*: the number of a column or key of a case. List items that are about it carry it, in every
//! statement, so that a column can be taken out of a whole case at once.

/// The number of a column or key of a case.
pub type Tag = u32;

/// Stands in statements for the name of the engine that runs them.
pub const ENGINE: &str = "{engine}";

/// Stands for the id of an XA transaction: two of a server have different ones.
pub const XID: &str = "'x-{engine}'";

/// A part of a statement.
#[derive(Clone, Debug)]
pub enum Sql {
    /// As it is.
    Text(String),
    /// One behind the other.
    Row(Vec<Sql>),
    /// With commas between them. A list that is empty makes no statement.
    List(Vec<Item>),
    /// A value; with it what could stand there as well and says less.
    Value(String, Vec<String>),
}

/// An item of a list.
#[derive(Clone, Debug)]
pub struct Item {
    /// The column or key that it is about.
    pub tag: Option<Tag>,
    /// What it says.
    pub sql: Sql,
}

/// Text.
pub fn text(text: impl Into<String>) -> Sql {
    Sql::Text(text.into())
}

/// An item about a column or key.
pub fn tagged(tag: Tag, sql: Sql) -> Item {
    Item {
        tag: Some(tag),
        sql,
    }
}

/// A list of what is about no column.
pub fn list(items: impl IntoIterator<Item = Sql>) -> Sql {
    let item = |sql| Item { tag: None, sql };
    Sql::List(items.into_iter().map(item).collect())
}

impl Sql {
    /// The statement's text.
    pub fn render(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) {
        match self {
            Self::Text(own) | Self::Value(own, _) => text.push_str(own),
            Self::Row(parts) => parts.iter().for_each(|part| part.write(text)),
            Self::List(items) => {
                for (at, item) in items.iter().enumerate() {
                    text.push_str(if at > 0 { ", " } else { "" });
                    item.sql.write(text);
                }
            }
        }
    }

    /// All tags in it.
    pub fn tags(&self, tags: &mut Vec<Tag>) {
        match self {
            Self::Text(_) | Self::Value(..) => {}
            Self::Row(parts) => parts.iter().for_each(|part| part.tags(tags)),
            Self::List(items) => {
                for item in items {
                    tags.extend(item.tag);
                    item.sql.tags(tags);
                }
            }
        }
    }

    /// Without what is about this column or key.
    pub fn without_tag(&self, tag: Tag) -> Self {
        self.rebuilt(&mut |items| items.retain(|item| item.tag != Some(tag)))
    }

    /// How many items its lists have, in the order of [`Sql::without_items`].
    pub fn count_items(&self) -> usize {
        let mut count = 0;
        self.rebuilt(&mut |items| count += items.len());
        count
    }

    /// Without the items of these numbers; lists are counted outer ones first.
    pub fn without_items(&self, numbers: std::ops::Range<usize>) -> Self {
        let mut number = 0;
        self.rebuilt(&mut |items| {
            items.retain(|_| {
                number += 1;
                !numbers.contains(&(number - 1))
            });
        })
    }

    fn rebuilt(&self, change: &mut impl FnMut(&mut Vec<Item>)) -> Self {
        match self {
            Self::Text(_) | Self::Value(..) => self.clone(),
            Self::Row(parts) => Self::Row(parts.iter().map(|part| part.rebuilt(change)).collect()),
            Self::List(items) => {
                let mut items = items.clone();
                change(&mut items);
                for item in &mut items {
                    item.sql = item.sql.rebuilt(change);
                }
                Self::List(items)
            }
        }
    }

    /// Every statement that differs from this one by a simpler value in one place.
    pub fn simpler(&self) -> Vec<Self> {
        let mut found = Vec::new();
        for (at, simpler) in self.values().into_iter().enumerate() {
            for other in simpler {
                let mut number = 0;
                found.push(self.with_value(at, &other, &mut number));
            }
        }
        found
    }

    fn values(&self) -> Vec<Vec<String>> {
        match self {
            Self::Text(_) => Vec::new(),
            Self::Value(_, simpler) => vec![simpler.clone()],
            Self::Row(parts) => parts.iter().flat_map(Self::values).collect(),
            Self::List(items) => items.iter().flat_map(|item| item.sql.values()).collect(),
        }
    }

    fn with_value(&self, at: usize, value: &str, number: &mut usize) -> Self {
        match self {
            Self::Text(_) => self.clone(),
            Self::Value(own, simpler) => {
                *number += 1;
                if *number - 1 != at {
                    self.clone()
                } else {
                    // What stands before it in its own list may still come.
                    Self::Value(
                        value.to_owned(),
                        simpler
                            .iter()
                            .take_while(|other| *other != value && *other != own)
                            .cloned()
                            .collect(),
                    )
                }
            }
            Self::Row(parts) => Self::Row(
                parts
                    .iter()
                    .map(|part| part.with_value(at, value, number))
                    .collect(),
            ),
            Self::List(items) => Self::List(
                items
                    .iter()
                    .map(|item| Item {
                        tag: item.tag,
                        sql: item.sql.with_value(at, value, number),
                    })
                    .collect(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert() -> Sql {
        let value = |tag, own: &str| tagged(tag, Sql::Value(own.to_owned(), vec!["1".to_owned()]));
        let row = |a: &str, b: &str| {
            Sql::Row(vec![
                text("("),
                Sql::List(vec![value(1, a), value(2, b)]),
                text(")"),
            ])
        };
        Sql::Row(vec![
            text("INSERT INTO t ("),
            Sql::List(vec![tagged(1, text("a")), tagged(2, text("b"))]),
            text(") VALUES "),
            list([row("7", "8"), row("9", "1")]),
        ])
    }

    #[test]
    fn what_is_taken_away_leaves_a_statement() {
        let insert = insert();
        assert_eq!(
            insert.render(),
            "INSERT INTO t (a, b) VALUES (7, 8), (9, 1)"
        );
        assert_eq!(
            insert.without_tag(1).render(),
            "INSERT INTO t (b) VALUES (8), (1)"
        );
        // Two names, two rows, and the two values of each.
        assert_eq!(insert.count_items(), 8);
        assert_eq!(
            insert.without_items(2..3).render(),
            "INSERT INTO t (a, b) VALUES (9, 1)"
        );
        let simpler = insert.simpler();
        assert_eq!(simpler.len(), 4);
        assert_eq!(
            simpler[0].render(),
            "INSERT INTO t (a, b) VALUES (1, 8), (9, 1)"
        );
        assert!(
            simpler[0].simpler().len() < simpler.len(),
            "it comes to an end"
        );
    }
}
