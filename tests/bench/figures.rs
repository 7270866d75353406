//! Samples and how they are printed.

use std::time::Duration;

/// Measurements of one thing, in one unit.
pub(crate) struct Samples {
    sorted: Vec<f64>,
}

impl Samples {
    pub(crate) fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { sorted: values }
    }

    pub(crate) fn of_times(times: &[Duration]) -> Self {
        Self::new(times.iter().map(|time| time.as_secs_f64() * 1e3).collect())
    }

    fn at(&self, share: f64) -> f64 {
        match self.sorted.len() {
            0 => f64::NAN,
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss,
                reason = "an index into a short list"
            )]
            len => self.sorted[((len - 1) as f64 * share).round() as usize],
        }
    }
}

/// One line of the table.
pub(crate) struct Figure {
    pub(crate) what: &'static str,
    pub(crate) unit: &'static str,
    /// What the project aims at, on a quiet machine.
    pub(crate) aim: &'static str,
    pub(crate) samples: Samples,
}

/// A Markdown table.
pub(crate) fn table(figures: &[Figure]) -> String {
    let mut table = String::from(
        "| what | unit | median | min | p95 | p99 | max | n | aim |\n|---|---|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for Figure { what, unit, aim, samples } in figures {
        let [median, min, p95, p99, max] = [0.5, 0.0, 0.95, 0.99, 1.0].map(|share| number(samples.at(share)));
        let n = samples.sorted.len();
        table.push_str(&format!(
            "| {what} | {unit} | {median} | {min} | {p95} | {p99} | {max} | {n} | {aim} |\n"
        ));
    }
    table
}

/// Three digits that matter.
fn number(value: f64) -> String {
    match value.abs() {
        value if value.is_nan() => "-".to_owned(),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shows_the_middle_and_the_ends() {
        let samples = Samples::new(vec![3.0, 1.0, 200.25, 2.0, 0.5]);
        let figures = [Figure { what: "start", unit: "ms", aim: "< 10", samples }];
        assert!(table(&figures).ends_with("| start | ms | 2.00 | 0.500 | 200 | 200 | 200 | 5 | < 10 |\n"));
        let none = [Figure { what: "x", unit: "ms", aim: "", samples: Samples::new(Vec::new()) }];
        assert!(table(&none).ends_with("| x | ms | - | - | - | - | - | 0 |  |\n"));
    }
}
