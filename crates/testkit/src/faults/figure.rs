//! A measured figure, its bound, and what is known to break it until that is fixed.

use std::fmt;

/// What is measured, and what it may be.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// What it is.
    pub name: &'static str,
    /// Of what.
    pub unit: &'static str,
    /// It may not be greater.
    pub bound: f64,
    /// Why it is, for now.
    pub breach: Option<Breach>,
}

/// A bound that is known not to be kept. It fails a campaign when it gets worse, and when it is
/// gone: then it is to be deleted here.
#[derive(Clone, Copy, Debug)]
pub struct Breach {
    /// What ends it.
    pub until: &'static str,
    /// Until then the figure may not be greater than this.
    pub limit: f64,
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The figure.
    pub figure: Figure,
    /// Its value.
    pub value: f64,
}

impl Measured {
    /// Whether all is as it should be, or as bad as is known.
    pub fn judge(&self) -> Result<(), String> {
        let (value, bound) = (self.value, self.figure.bound);
        match self.figure.breach {
            None if value <= bound => Ok(()),
            None => Err(format!("{self}: over its bound")),
            Some(_) if value <= bound => Err(format!(
                "{self}: the bound is kept now; delete the known breach"
            )),
            Some(breach) if value <= breach.limit => Ok(()),
            Some(_) => Err(format!("{self}: worse than is known")),
        }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figure {
            name,
            unit,
            bound,
            breach,
        } = self.figure;
        write!(f, "{name}: {:.1} {unit}, bound {bound}", self.value)?;
        match breach {
            None => Ok(()),
            Some(Breach { until, limit }) => {
                write!(f, " (KNOWN BREACH up to {limit}, until {until})")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(value: f64, breach: Option<Breach>) -> bool {
        let (name, unit, bound) = ("size", "bytes", 10.0);
        let figure = Figure {
            name,
            unit,
            bound,
            breach,
        };
        Measured { figure, value }.judge().is_ok()
    }

    #[test]
    fn a_known_breach_may_neither_grow_nor_stay_when_it_is_mended() {
        let breach = Some(Breach {
            until: "it is fixed",
            limit: 20.0,
        });
        assert!(judged(10.0, None) && !judged(10.1, None));
        assert!(judged(10.1, breach) && judged(20.0, breach));
        assert!(!judged(20.1, breach) && !judged(10.0, breach));
    }
}
