//! How handles are shown by `{:?}`: by what they are of, without rows, pages and latches.

/// Implements `Debug` for a type, with these fields. Generic parameters of the type come behind a
/// semicolon.
macro_rules! debug_as {
    ($type:ty, $name:literal, |$this:ident| $($field:literal = $value:expr),+
     $(; $($generic:tt)+)?) => {
        impl$(<$($generic)+>)? std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                f.debug_struct($name)
                    $(.field($field, &$value))+
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use debug_as;
