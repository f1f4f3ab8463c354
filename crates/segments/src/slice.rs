//! Time slices: periods in which the name of a file stays the same.

use std::ops::Range;

use jiff::{Timestamp, Zoned, civil::DateTime, tz::TimeZone};

/// The finest unit of time in a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Month,
    Year,
}

/// The civil time of `seconds`, for years 0 to 9999.
pub(crate) fn zoned(seconds: i64, zone: &TimeZone) -> Option<Zoned> {
    let zoned = Timestamp::from_second(seconds).ok()?.to_zoned(zone.clone());
    (zoned.year() >= 0).then_some(zoned)
}

impl Unit {
    /// The time slice around `at`, in seconds since the epoch: the range with the same civil time down to this unit.
    pub(crate) fn slice(self, at: &Zoned) -> Range<i64> {
        let second = at.timestamp().as_second();
        let only_this = second..second + 1;
        let of_hour = i64::from(at.minute()) * 60 + i64::from(at.second());
        let slice = match self {
            Self::Second => return only_this,
            Self::Minute => from_start(second - i64::from(at.second()), 60),
            Self::Hour => from_start(second - of_hour, 3600),
            Self::Day | Self::Month | Self::Year => match self.days(at) {
                Some(slice) => slice,
                None => return only_this,
            },
        };
        // A time zone may shift by anything from seconds to a day, so the calculated ends of the slice are checked.
        let same = |second| {
            zoned(second, at.time_zone())
                .is_some_and(|other| self.floor(other.datetime()) == self.floor(at.datetime()))
        };
        if same(slice.start) && same(slice.end - 1) { slice } else { only_this }
    }

    fn days(self, at: &Zoned) -> Option<Range<i64>> {
        let (first, last) = match self {
            Self::Month => (at.first_of_month().ok()?, at.last_of_month().ok()?),
            Self::Year => (at.first_of_year().ok()?, at.last_of_year().ok()?),
            _ => (at.clone(), at.clone()),
        };
        let start = first.start_of_day().ok()?.timestamp().as_second();
        let end = last.tomorrow().ok()?.start_of_day().ok()?.timestamp().as_second();
        Some(start..end)
    }

    fn floor(self, time: DateTime) -> (i16, i8, i8, i8, i8, i8) {
        let at_most = |unit, value| if self <= unit { value } else { 0 };
        (
            time.year(),
            at_most(Self::Month, time.month()),
            at_most(Self::Day, time.day()),
            at_most(Self::Hour, time.hour()),
            at_most(Self::Minute, time.minute()),
            at_most(Self::Second, time.second()),
        )
    }
}

fn from_start(start: i64, seconds: i64) -> Range<i64> {
    start..start + seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    const LORD_HOWE: &str = "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0";

    fn slice(unit: Unit, zone: &str, seconds: i64) -> Range<i64> {
        unit.slice(&zoned(seconds, &TimeZone::posix(zone).unwrap()).unwrap())
    }

    #[test]
    fn days_are_those_of_the_zone() {
        // 2020-01-13 00:00 in Seoul.
        let midnight = 1_578_841_200;
        assert_eq!(slice(Unit::Day, "KST-9", midnight), midnight..midnight + 86_400);
        assert_eq!(slice(Unit::Day, "KST-9", midnight - 1), midnight - 86_400..midnight);
        assert_eq!(slice(Unit::Hour, "IST-5:30", midnight), midnight - 1800..midnight + 1800);
    }

    #[test]
    fn a_day_on_which_the_clocks_change_has_its_own_length() {
        // 2026-03-29 00:00 in Berlin: 23 hours.
        let midnight = 1_774_738_800;
        assert_eq!(slice(Unit::Day, "CET-1CEST,M3.5.0,M10.5.0/3", midnight), midnight..midnight + 23 * 3600);
    }

    #[test]
    fn a_slice_has_one_name() {
        // Lord Howe Island moves its clocks by half an hour: on 2026-10-04, 02:00 becomes 02:30.
        let change = 1_791_041_400;
        for second in (change - 7200..change + 7200).step_by(60) {
            let range = slice(Unit::Hour, LORD_HOWE, second);
            let zone = TimeZone::posix(LORD_HOWE).unwrap();
            let hour = |second| zoned(second, &zone).unwrap().hour();
            assert!(range.contains(&second));
            assert_eq!(hour(range.start), hour(second));
            assert_eq!(hour(range.end - 1), hour(second));
        }
    }

    #[test]
    fn months_and_years_end_where_the_next_begin() {
        let month = slice(Unit::Month, "UTC0", 1_582_934_400); // 2020-02-29
        assert_eq!(month, 1_580_515_200..1_583_020_800);
        assert_eq!(slice(Unit::Year, "UTC0", 1_582_934_400), 1_577_836_800..1_609_459_200);
        assert_eq!(zoned(i64::MAX, &TimeZone::UTC), None);
    }
}
