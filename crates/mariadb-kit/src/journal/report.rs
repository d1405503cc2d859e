//! Medians of all runs, as a table, JSON and a chart.

use super::load::{Load, Program, Run, Sizes};
use inkstone_bench::chart::{Chart, Form};
use inkstone_bench::output::{Output, rounded};
use inkstone_bench::sink::{Fields, Sink};
use inkstone_bench::statistics::median;
use inkstone_testkit::build::Result;
use inkstone_testkit::loops::Case;
use std::path::Path;

const COLUMNS: [&str; 9] = [
    "load",
    "program",
    "case",
    "updates_per_s",
    "to_usual",
    "worst_over_median",
    "device_bytes_per_update",
    "own_bytes_per_update",
    "written",
];

/// The runs of a load and program in a case.
struct Row {
    load: Load,
    program: Program,
    case: &'static Case,
    runs: Vec<Run>,
}

/// Results so far.
pub struct Report<'o> {
    sink: Sink<'o>,
    rows: Vec<Row>,
}

impl<'o> Report<'o> {
    /// Refuses a file for the chart that cannot be written.
    pub fn new(output: &'o Output, plot: Option<&Path>) -> Result<Self> {
        let sink = Sink::new(output, plot, &COLUMNS).map_err(|error| error.to_string())?;
        let rows = Vec::new();
        Ok(Self { sink, rows })
    }

    /// Takes a run.
    pub fn take(&mut self, load: Load, program: Program, case: &'static Case, run: Run) {
        let same = |row: &&mut Row| (row.load, row.program, row.case) == (load, program, case);
        match self.rows.iter_mut().find(same) {
            Some(row) => row.runs.push(run),
            None => self.rows.push(Row {
                load,
                program,
                case,
                runs: vec![run],
            }),
        }
    }

    /// Prints all, and draws.
    pub fn finish(mut self, sizes: Sizes) -> Result<()> {
        let key = |row: &Row| (row.load as u8, row.program as u8);
        self.rows.sort_by_key(key);
        for row in &self.rows {
            let usual = |other: &&Row| key(other) == key(row) && other.is_usual_for(row.case);
            let usual = self.rows.iter().find(usual);
            self.sink.take(row.fields(usual, sizes));
        }
        let chart = Chart {
            title: "Durable updates a second with 16 clients",
            by: &["load", "program", "case"],
            form: Form::Bars {
                values: &["updates_per_s"],
                unit: "updates a second",
            },
        };
        self.sink.finish(&chart).map_err(|error| error.to_string())
    }
}

impl Row {
    /// Whether a case is compared with this one: a copy of each page, and the same page size.
    fn is_usual_for(&self, case: &Case) -> bool {
        self.case.mends() && self.case.page_bytes == case.page_bytes
    }

    fn median(&self, figure: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        let figures: Vec<f64> = self.runs.iter().filter_map(figure).collect();
        (!figures.is_empty()).then(|| median(&figures))
    }

    fn rate(&self) -> f64 {
        self.median(|run| Some(run.updates_per_s))
            .unwrap_or_default()
    }

    fn fields(&self, usual: Option<&Row>, sizes: Sizes) -> Fields {
        let own = self.median(|run| Some(run.own_bytes_per_update()));
        let device = self.median(|run| run.device_bytes_per_update);
        let to_usual = usual.map(|usual| rounded(self.rate() / usual.rate(), 3));
        let classes = self.runs.first().map_or(&[][..], |run| &run.written[..]);
        let written = classes.iter().map(|(class, _)| {
            let bytes = self.median(|run| Some(run.written_to(class)));
            (class.clone(), bytes.into())
        });
        Fields::of("journal")
            .with("load", self.load.name())
            .with("program", self.program.name())
            .with("case", self.case.name)
            .with("doublewrite", self.case.doublewrite.to_string())
            .with("page_size", self.case.page_bytes)
            .with("rounds", self.runs.len())
            .with("seconds", sizes.seconds)
            .with("pool_bytes", sizes.pool_bytes)
            .with("log_bytes", sizes.log_bytes)
            .with("data_bytes", sizes.data_bytes(self.load))
            .with("updates_per_s", rounded(self.rate(), 0))
            .with("to_usual", to_usual)
            .with(
                "worst_over_median",
                self.median(|run| run.worst_over_median),
            )
            .with("device_bytes_per_update", device)
            .with("own_bytes_per_update", own.map(|bytes| rounded(bytes, 1)))
            .with(
                "written",
                written.collect::<serde_json::Map<String, serde_json::Value>>(),
            )
    }
}
