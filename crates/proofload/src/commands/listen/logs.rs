//! What happens, told on standard error.

use std::io;

use tracing::level_filters::LevelFilter;

use super::draft::LogForm;

/// Begins to tell. Nothing but the first call has an effect.
pub fn begin(form: LogForm, level: LevelFilter) {
    let subscriber =
        tracing_subscriber::fmt().with_max_level(level).with_target(false).with_writer(io::stderr);
    // The journal and its like have times of their own; JSON goes to those who have not.
    let begun = match form {
        LogForm::Text => subscriber.without_time().try_init(),
        LogForm::Json => subscriber.json().flatten_event(true).try_init(),
    };
    // Refused where somebody tells already, such as another test in this process.
    drop(begun);
}
