#define BOOST_TEST_MODULE lanekeeper
#include <boost/test/unit_test.hpp>
