//! Statistics for tables and figures.

/// Returns the median, the mean of the two values in the middle if their number is even; `None` if there are none.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        Some(sorted[middle])
    } else {
        Some((sorted[middle - 1] + sorted[middle]) / 2.0)
    }
}

/// Student's t for an interval of 95 %, by the degrees of freedom from 1.
const T_95: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
/// Student's t for many degrees of freedom; slightly too wide for more than ten.
const T_95_MANY: f64 = 2.228;

/// Returns the 95 % interval of the mean of normally distributed values; `None` for fewer than two.
pub(crate) fn confidence_interval(values: &[f64]) -> Option<(f64, f64)> {
    let degrees = values.len().checked_sub(1).filter(|degrees| *degrees > 0)?;
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / degrees as f64;
    let t = T_95.get(degrees - 1).copied().unwrap_or(T_95_MANY);
    let half = t * (variance / count).sqrt();
    Some((mean - half, mean + half))
}

/// A straight line: `intercept + slope * x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    /// The value at zero.
    pub intercept: f64,
    /// Increase for one unit of x.
    pub slope: f64,
}

/// Returns the least-squares line through the points that minimises the error relative to each value.
///
/// Delays span two decades from the smallest message to the largest. Plain least squares would see only the largest ones and
/// could put the cost of a message anywhere, even below zero; dividing each error by its value gives every size the same weight.
/// Points with a value that is not positive are ignored.
pub(crate) fn fit_line(points: &[(f64, f64)]) -> Option<Line> {
    let usable: Vec<(f64, f64)> = points.iter().copied().filter(|&(_, y)| y > 0.0).collect();
    let (mut weights, mut sum_x, mut sum_y, mut sum_xx, mut sum_xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for &(x, y) in &usable {
        let weight = 1.0 / (y * y);
        weights += weight;
        sum_x += weight * x;
        sum_y += weight * y;
        sum_xx += weight * x * x;
        sum_xy += weight * x * y;
    }
    let determinant = weights * sum_xx - sum_x * sum_x;
    if usable.len() < 2 || determinant <= f64::EPSILON * weights * sum_xx {
        return None;
    }
    let slope = (weights * sum_xy - sum_x * sum_y) / determinant;
    Some(Line { intercept: (sum_y - slope * sum_x) / weights, slope })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_holds_the_mean_and_takes_two_values() {
        let (low, high) = confidence_interval(&[9.0, 10.0, 11.0]).expect("three values");
        // 4.303 deviations of the mean, each 1/√3.
        assert!((low - 7.516).abs() < 0.001 && (high - 12.484).abs() < 0.001, "{low} to {high}");
        assert_eq!(confidence_interval(&[1.0]), None);
        assert_eq!(confidence_interval(&[5.0, 5.0]), Some((5.0, 5.0)));
    }

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_straight_line_is_found_exactly() {
        let points: Vec<(f64, f64)> = [1.0, 64.0, 1024.0, 16384.0].map(|x| (x, 0.8 + 0.0005 * x)).to_vec();
        let line = fit_line(&points).expect("four points make a line");
        assert!((line.intercept - 0.8).abs() < 1e-9, "{line:?}");
        assert!((line.slope - 0.0005).abs() < 1e-12, "{line:?}");
    }

    #[test]
    fn noise_in_the_largest_size_does_not_move_the_cost_of_a_message() {
        let mut points: Vec<(f64, f64)> =
            [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0].map(|x| (x, 0.8 + 0.0005 * x)).to_vec();
        points.push((65536.0, 1.3 * (0.8 + 0.0005 * 65536.0)));
        let line = fit_line(&points).expect("eight points make a line");
        assert!((line.intercept - 0.8).abs() < 0.02, "{line:?}");
    }

    #[test]
    fn one_place_makes_no_line() {
        assert_eq!(fit_line(&[(1.0, 2.0)]), None);
        assert_eq!(fit_line(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(fit_line(&[(1.0, 2.0), (2.0, 0.0)]), None);
    }
}
