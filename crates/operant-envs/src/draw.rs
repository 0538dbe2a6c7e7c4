//! Pictures of the classic-control environments, with the geometry and colours of Gymnasium's.
//!
//! A part whose place is not finite is left out.

use operant_env::{Canvas, Color};

/// Width and height in pixels.
const WIDE: (usize, usize) = (600, 400);
/// Width and height in pixels.
const SQUARE: (usize, usize) = (500, 500);

const BLACK: Color = [0, 0, 0];
const YELLOW: Color = [204, 204, 0];

/// Draws the cart at `x` metres with its pole leaning `theta` radians to the right of upright.
/// `x_threshold` is the distance in metres from the centre to the picture's edge, and `length` is
/// half the pole's, in metres.
pub(super) fn cartpole(x: f32, theta: f32, x_threshold: f32, length: f32) -> Canvas {
    let mut c = Canvas::new(WIDE.0, WIDE.1);
    let (width, height) = (WIDE.0 as f32, WIDE.1 as f32);
    let scale = width / (2.0 * x_threshold);
    let track_y = height - 100.0;
    let cart_x = x * scale + width / 2.0;
    let axle_y = track_y - 7.5;
    let pole_width = 10.0;
    let overhang = pole_width / 2.0;
    let tip = 2.0 * length * scale - overhang;
    let (sin, cos) = theta.sin_cos();

    c.fill_rect(cart_x - 25.0, track_y - 15.0, cart_x + 25.0, track_y + 15.0, BLACK);
    let pole_from = (cart_x - overhang * sin, axle_y + overhang * cos);
    let pole_to = (cart_x + tip * sin, axle_y - tip * cos);
    c.line(pole_from, pole_to, pole_width, [202, 152, 101]);
    c.fill_circle(cart_x, axle_y, overhang, [129, 132, 203]);
    c.fill_rect(0.0, track_y - 1.0, width, track_y, BLACK);
    c
}

/// Draws the hill, the flag at `goal_position` and the car at `position`. Positions are in the
/// environment's own unit; `min_position` is the picture's left edge and `max_position` its right.
pub(super) fn mountain_car(position: f32, min_position: f32, max_position: f32, goal_position: f32) -> Canvas {
    let mut c = Canvas::new(WIDE.0, WIDE.1);
    const POINTS: usize = 100;
    let (width, height) = (WIDE.0 as f32, WIDE.1 as f32);
    let world_width = max_position - min_position;
    let scale = width / world_width;
    let hill = |p: f32| {
        let altitude = (3.0 * p).sin() * 0.45 + 0.55;
        ((p - min_position) * scale, height - altitude * scale)
    };

    // The hill is one polygon, there and back: separate lines would show where they meet.
    let hill_edge = |i: usize, side: f32| {
        let p = min_position + world_width * i as f32 / (POINTS - 1) as f32;
        let slope = 1.35 * (3.0 * p).cos();
        let half = side * 0.5 / slope.hypot(1.0);
        let (x, y) = hill(p);
        (x + slope * half, y + half)
    };
    let there = (0..POINTS).map(|i| hill_edge(i, 1.0));
    let back = (0..POINTS).rev().map(|i| hill_edge(i, -1.0));
    c.fill_polygon(&there.chain(back).collect::<Vec<_>>(), BLACK);

    let (car_x, hill_y) = hill(position);
    // Gymnasium tilts the car by the cosine itself rather than by the slope's angle.
    let (sin, cos) = (3.0 * position).cos().sin_cos();
    let on_car = |along: f32, up: f32| {
        let x = car_x + along * cos - up * sin;
        (x, hill_y - 10.0 - along * sin - up * cos)
    };
    let body = [(-20.0, 0.0), (-20.0, 20.0), (20.0, 20.0), (20.0, 0.0)];
    c.fill_polygon(&body.map(|(along, up)| on_car(along, up)), BLACK);
    for along in [-10.0, 10.0] {
        let (x, y) = on_car(along, 0.0);
        c.fill_circle(x, y, 8.0, [128, 128, 128]);
    }

    // Whole pixels keep the one-pixel pole sharp.
    let (x, base) = hill(goal_position);
    let (x, top) = (x.floor(), base.floor() - 50.0);
    c.fill_rect(x, top, x + 1.0, base, BLACK);
    c.fill_polygon(&[(x, top), (x, top + 10.0), (x + 25.0, top + 5.0)], YELLOW);
    c
}

/// Draws the rod, `l` metres long and `theta` radians to the left of upright. The picture's edge is
/// 2.2 metres from the axle.
pub(super) fn pendulum(theta: f32, l: f32) -> Canvas {
    let mut c = Canvas::new(SQUARE.0, SQUARE.1);
    const ROD: Color = [204, 77, 77];
    let middle = SQUARE.0 as f32 / 2.0;
    let scale = middle / 2.2;
    let radius = 0.1 * scale;
    let (sin, cos) = theta.sin_cos();
    let tip = (middle - l * scale * sin, middle - l * scale * cos);

    c.line((middle, middle), tip, 2.0 * radius, ROD);
    c.fill_circle(middle, middle, radius, ROD);
    c.fill_circle(tip.0, tip.1, radius, ROD);
    c.fill_circle(middle, middle, 0.05 * scale, BLACK);
    c
}

/// Draws the two links, `l1` and `l2` metres long, and the line that the tip has to pass. `theta1`
/// is the first link's angle in radians to the right of hanging straight down, and `theta2` the
/// second link's, relative to the first.
pub(super) fn acrobot(theta1: f32, theta2: f32, l1: f32, l2: f32) -> Canvas {
    let mut c = Canvas::new(SQUARE.0, SQUARE.1);
    let size = SQUARE.0 as f32;
    let middle = size / 2.0;
    let scale = middle / (l1 + l2 + 0.2);
    let radius = 0.1 * scale;
    let goal_y = (middle - scale).floor();

    c.fill_rect(0.0, goal_y, size, goal_y + 1.0, BLACK);
    let mut joint = (middle, middle);
    for (angle, length) in [(theta1, l1), (theta1 + theta2, l2)] {
        let (sin, cos) = angle.sin_cos();
        let end = (joint.0 + length * scale * sin, joint.1 + length * scale * cos);
        c.line(joint, end, 2.0 * radius, [0, 204, 204]);
        c.fill_circle(joint.0, joint.1, radius, YELLOW);
        joint = end;
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pixel(c: &Canvas, x: usize, y: usize) -> Color {
        let start = (y * c.width() + x) * 3;
        c.pixels()[start..start + 3].try_into().unwrap()
    }

    #[test]
    fn parts_are_where_the_state_says() {
        let c = cartpole(1.2, 0.0, 2.4, 0.5);
        assert_eq!(pixel(&c, 430, 310), BLACK);
        assert_eq!(pixel(&c, 450, 200), [202, 152, 101]);
        assert_eq!(pixel(&c, 100, 299), BLACK);
        assert_eq!(pixel(&mountain_car(-0.5, -1.2, 0.6, 0.5), 233, 350), BLACK);
        assert_eq!(pixel(&pendulum(std::f32::consts::FRAC_PI_2, 1.0), 150, 250), [204, 77, 77]);
        let c = acrobot(std::f32::consts::FRAC_PI_2, 0.0, 1.0, 1.0);
        assert_eq!(pixel(&c, 460, 250), [0, 204, 204]);
        assert_eq!(pixel(&c, 20, 136), BLACK);
    }

    #[test]
    fn any_state_is_safe() {
        for v in [f32::NAN, f32::INFINITY, f32::MAX, f32::MIN, 0.0] {
            cartpole(v, v, v, v);
            cartpole(v, 0.1, 2.4, 0.5);
            mountain_car(v, v, v, v);
            mountain_car(v, -1.2, 0.6, 0.5);
            pendulum(v, v);
            acrobot(v, v, v, v);
        }
    }
}
