//! The breaker of mode `auto`: how often its classifier may refuse a session's calls before a person is asked again.

use serde::{Deserialize, Serialize};

/// Refusals in a row that open it.
const IN_ROW: u32 = 3;
/// Refusals in all that open it.
const IN_ALL: u32 = 20;

/// A session's breaker. Only [`Breaker::default`] is closed again once it has opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    in_row: u32,
    total: u32,
    /// Somebody opened it by hand.
    thrown: bool,
}

impl Breaker {
    #[must_use]
    pub fn is_open(self) -> bool {
        self.thrown || self.in_row >= IN_ROW || self.total >= IN_ALL
    }

    #[must_use]
    pub fn in_row(self) -> u32 {
        self.in_row
    }

    #[must_use]
    pub fn total(self) -> u32 {
        self.total
    }

    /// The classifier refused a call, or said what nobody can read.
    #[must_use]
    pub fn refused(self) -> Self {
        Self { in_row: self.in_row.saturating_add(1), total: self.total.saturating_add(1), ..self }
    }

    /// It allowed one. What has opened the breaker stays: only a person closes it.
    #[must_use]
    pub fn allowed(self) -> Self {
        if self.is_open() { self } else { Self { in_row: 0, ..self } }
    }

    /// Of two, the one that lets less happen.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        let rank = |breaker: Self| (breaker.is_open(), breaker.total, breaker.in_row);
        if rank(other) > rank(self) { other } else { self }
    }

    /// Opened by hand.
    #[must_use]
    pub fn thrown(self) -> Self {
        Self { thrown: true, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a` allowed, `r` refused, `t` thrown.
    fn after(what: &str) -> Breaker {
        what.chars().fold(Breaker::default(), |breaker, it| match it {
            'a' => breaker.allowed(),
            'r' => breaker.refused(),
            _ => breaker.thrown(),
        })
    }

    #[test]
    fn three_in_a_row_or_twenty_in_all_open_it() {
        for (what, open, in_row, total) in [
            ("", false, 0, 0),
            ("rr", false, 2, 2),
            ("rra", false, 0, 2),
            ("rrarra", false, 0, 4),
            ("rrr", true, 3, 3),
            ("rrarrr", true, 3, 5),
            ("rarrrr", true, 4, 5),
            // Nothing that the classifier says later closes it.
            ("rrra", true, 3, 3),
            ("rrraaaa", true, 3, 3),
            ("t", true, 0, 0),
            ("ta", true, 0, 0),
            ("rtra", true, 2, 2),
        ] {
            let breaker = after(what);
            assert_eq!(
                (breaker.is_open(), breaker.in_row(), breaker.total()),
                (open, in_row, total),
                "{what}"
            );
        }
        let nineteen = "ra".repeat(19);
        assert!(!after(&nineteen).is_open());
        assert!(after(&format!("{nineteen}r")).is_open());
        assert!(after(&format!("{nineteen}ra")).is_open());
    }
}
